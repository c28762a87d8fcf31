"""Images of rows before and after each change, for logs of changes; their row state is in a SQL database."""
