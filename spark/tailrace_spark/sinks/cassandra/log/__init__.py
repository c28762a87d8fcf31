"""Log tables of ScyllaDB's shape."""
