"""What becomes of a segment: released, archived or spooled, dropped when cdc_raw is nearly full, or found missing."""
