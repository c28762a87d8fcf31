"""What all sinks that write a log of changes share: the sink over an outlet, and where its dead letters are."""
