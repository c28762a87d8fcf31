"""What several commands share: options, signals, the record of the host that a command is about."""
