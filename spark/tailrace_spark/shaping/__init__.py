"""What of a stream's changes its sink is given: filters and masks, before any sink (docs/shaping.md, docs/masks.md)."""

from tailrace_spark.shaping.shape import Shape, newest, shape_of

__all__ = ["Shape", "newest", "shape_of"]
