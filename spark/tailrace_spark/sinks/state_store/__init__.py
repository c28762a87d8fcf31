"""Row state kept in a SQL database: what the SQL sink and the images of changes stand on."""
