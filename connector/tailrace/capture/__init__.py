"""cdc_raw: watching, reading what the index released, and giving segments back; yields batches in position order."""
