"""A micro-batch in memory, before any sink: deliveries, images of rows, and how pieces of it are read."""
