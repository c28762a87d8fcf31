"""The Delta sink: its tables, written by delta-rs."""
