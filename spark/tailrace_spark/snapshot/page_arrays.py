"""The columns of a page as Arrow arrays of Cassandra's bytes, by numpy: no value becomes an object of Python.

They refer to the page, or are copied out of it a column at a time.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace_spark.sinks.arrow.values import Odd
from tailrace_spark.snapshot.page import PageColumns, read_lengths

_BINARY: Final = pa.binary()


class PageArrays:
    """The columns of one page, by their index. Raises TruncatedError, CorruptError where it is no page."""

    def __init__(self, page: PageColumns) -> None:
        self._data = page.data
        self._buffer = pa.py_buffer(page.data)
        self.rows = page.rows
        shape = page.rows, page.width
        self._lengths = np.frombuffer(read_lengths(page.data, page.width), "<i4").reshape(shape)
        sizes = np.maximum(self._lengths, 0).ravel()
        # A page has less than 2 GiB: the length of the native protocol's frames has 31 bits.
        ends = np.cumsum(sizes + 4, dtype=np.int32) + np.int32(4)
        self._starts = (ends - sizes).reshape(shape)
        self._ends = ends.reshape(shape)

    def fixed(self, column: int, size: int) -> tuple[Any, Odd]:
        """The values that have so many bytes, null for all others; which of these are no nulls, None: none is."""
        lengths, starts = self._lengths[:, column], self._starts[:, column]
        other_sizes = lengths != size
        if not other_sizes.any():
            return self._fixed(None, self._octets(starts, size), size), None
        present = ~other_sizes
        octets = np.zeros((self.rows,), f"V{size}")
        octets[present] = self._octets(starts[present], size)
        odd = other_sizes & (lengths >= 0)
        return self._fixed(_bits(present), octets, size), odd if odd.any() else None

    def binary(self, column: int) -> Any:
        """All values, null for null."""
        if not self.rows:
            return pa.array([], _BINARY)
        # Each value ends where the next begins: so what is between two of them is one, too.
        offsets = np.empty(2 * self.rows, np.int32)
        offsets[0::2] = self._starts[:, column]
        offsets[1::2] = self._ends[:, column]
        count = len(offsets) - 1
        between = pa.Array.from_buffers(_BINARY, count, [None, pa.py_buffer(offsets), self._buffer])
        nulls = self._lengths[:, column] < 0
        return between.take(pa.array(np.arange(0, count, 2, dtype=np.int32), mask=nulls if nulls.any() else None))

    def value(self, column: int, row: int) -> bytes | None:
        """One of them."""
        if self._lengths[row, column] < 0:
            return None
        return self._data[int(self._starts[row, column]) : int(self._ends[row, column])]

    def _octets(self, starts: npt.NDArray[np.int32], size: int) -> npt.NDArray[Any]:
        """The values that start there: the page as overlapping values, one at each byte."""
        if not len(starts):
            return np.empty(0, f"V{size}")
        return np.ndarray((len(self._data) - size + 1,), f"V{size}", self._data, strides=(1,))[starts]

    def _fixed(self, validity: Any, octets: npt.NDArray[Any], size: int) -> Any:
        return pa.Array.from_buffers(pa.binary(size), self.rows, [validity, pa.py_buffer(octets)])


def _bits(present: npt.NDArray[np.bool_]) -> Any:
    return pa.py_buffer(np.packbits(present, bitorder="little"))
