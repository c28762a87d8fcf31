"""What commands of both halves share: output, options, logs, and the form of checks."""
