"""The files sink: changes as Parquet or JSON lines, with manifests that say which files are whole."""
