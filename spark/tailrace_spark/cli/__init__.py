"""Commands of the Spark half: they parse, call and print."""
