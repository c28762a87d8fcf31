"""Row state: what is known of rows, merged exactly as Cassandra does, and what SELECT shows of it. No I/O, no clock."""
