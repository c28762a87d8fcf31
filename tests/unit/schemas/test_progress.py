"""Progress records: the way back, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.errors import CorruptError
from tailrace_schemas.position import Position
from tailrace_schemas.progress import Progress, decode_progress, encode_progress, progress_key

NUMBERS = st.integers(0, 2**62)
POSITIONS = st.builds(Position, NUMBERS, NUMBERS, NUMBERS)
HOSTS = st.text(st.characters(exclude_characters="/", codec="utf-8"), min_size=1)
NAMES = st.text(st.characters(codec="utf-8"))


@pytest.mark.slow
@given(
    st.builds(
        Progress,
        NAMES,
        HOSTS,
        POSITIONS,
        POSITIONS,
        NUMBERS,
        st.booleans(),
        NUMBERS,
        NUMBERS,
        st.none() | NUMBERS,
        st.none() | NAMES,
    )
)
def test_comes_back_equal(progress: Progress) -> None:
    assert decode_progress(progress_key(progress.cluster, progress.host), encode_progress(progress)) == progress


GOOD = encode_progress(Progress("c", "h", Position(1, 2, 3), Position(1, 2, 3), 5))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"h", GOOD),
        (b"c/h", b""),
        (b"c/h", b"[]"),
        (b"c/h", b"{}"),
        (b"c/h", GOOD.replace(b'"format":1', b'"format":2')),
        (b"c/h", GOOD.replace(b'"at":5', b'"at":null')),
        (b"c/h", GOOD.replace(b'"segment":2', b'"other":2')),
    ],
)
def test_a_foreign_record_is_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(CorruptError, match="progress of"):
        decode_progress(key, value)
