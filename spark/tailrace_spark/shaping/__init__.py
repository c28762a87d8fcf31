"""Filters and masks of a stream's changes, before any sink (docs/shaping.md)."""

from tailrace_spark.shaping.change_filters import Filters
from tailrace_spark.shaping.conditions import split_conditions
from tailrace_spark.shaping.shape import NO_WHOLE_ROWS, Shape, masks_of, newest, newest_entries, shape_of

__all__ = [
    "NO_WHOLE_ROWS",
    "Filters",
    "Shape",
    "masks_of",
    "newest",
    "newest_entries",
    "shape_of",
    "split_conditions",
]
