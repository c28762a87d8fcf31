"""The Iceberg sink: its tables, and their catalogs."""
