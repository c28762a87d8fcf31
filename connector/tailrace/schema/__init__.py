"""Which definition of a table holds at a position, while the agent runs: the log's DDL, and reads of the cluster."""
