"""What both halves do with the outside: settings, jars, readers of the schemas and generations topics."""
