"""The streaming job: its batches, checkpoint, metrics and what it says of itself."""
