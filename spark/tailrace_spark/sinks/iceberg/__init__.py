"""Iceberg tables: their store and its catalogs."""
