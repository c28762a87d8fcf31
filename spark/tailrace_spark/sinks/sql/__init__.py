"""The SQL sink: views that read as SELECT reads the source, over row state in the same database."""
