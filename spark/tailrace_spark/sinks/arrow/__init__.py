"""Changes and rows as Arrow batches, in the types and ranges that lakes and Parquet have."""
