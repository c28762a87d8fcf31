"""What the clustering key of a stored state starts with: which kind of state it is, in the order of their reading."""

from __future__ import annotations

from typing import Final

# The order is that of Cassandra's UnfilteredRowIterator: the partition's deletion, its static row, then clustered ones.
# So one scan of a partition's keys has met every deletion before the first row that it may cover.
PARTITION: Final = b"\x00"
STATIC: Final = b"\x01"
RANGE: Final = b"\x02"
ROW: Final = b"\x03"
# No key starts with it: it is the upper bound of a scan over all rows of a partition.
END: Final = b"\x04"
