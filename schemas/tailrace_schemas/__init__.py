"""What both halves of Tailrace agree on: CQL types, tables, change records, tokens, streams and topics."""
