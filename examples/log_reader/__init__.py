"""A reader of log tables, as readers of ScyllaDB's CDC are made: see README.md beside this file."""
