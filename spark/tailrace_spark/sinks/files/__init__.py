"""The files sink: changes as Parquet or JSON lines, in files that are whole or absent."""
