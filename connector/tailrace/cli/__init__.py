"""Commands: parse arguments, call, print."""
