"""Delta tables: their stores, with and without Spark."""
