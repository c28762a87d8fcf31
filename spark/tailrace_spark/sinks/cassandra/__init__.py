"""Sinks in another Cassandra or ScyllaDB cluster: its driver, its user types, tables that follow."""
