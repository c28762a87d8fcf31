"""The demo: real services on this machine, a table that changes, and a local database that follows."""
