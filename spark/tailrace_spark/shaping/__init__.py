"""Filters and masks of a stream's changes, before any sink (docs/shaping.md, docs/masks.md)."""

from tailrace_spark.shaping.masks import masks_of
from tailrace_spark.shaping.shape import Shape, newest, shape_of
from tailrace_spark.shaping.task_filters import TaskFilters

__all__ = ["Shape", "TaskFilters", "masks_of", "newest", "shape_of"]
