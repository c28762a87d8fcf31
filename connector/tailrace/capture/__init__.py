"""cdc_raw in position order: who owns it, what appears in it, what of it may be read, and the recovery of segments."""
