"""The real services that integration tests share: child processes or containers, and one Spark session."""
