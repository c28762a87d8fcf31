"""The merge engine of all merging stores: values in, values out; no store's library, no clock, no input or output.

A store reads what it has stored of a batch's partitions and rows, has them merged, and writes what becomes of them.

- `by_table` and `batch_changes` group the changes of a batch, and merge those of one row with each other.
- `truncation` tells the floor up to which a table is erased, `purge_horizon` which changes come too late.
- `row` merges one row or static row with its stored state; `fast` does so as bytes, where both are plain.
- `partition` merges whole partitions, for stores that read these: lakes at once, OpenSearch what stands above the rows
  before these. The SQL sink merges row by row, while the database writes others, and has the database delete what
  ranges cover.
- `purge` tells what a purge horizon lets go.

Row images merge one change at a time (`rowstate.partition`), since each change has images of its own. They share the
grouping, the truncations and the purging.
"""
