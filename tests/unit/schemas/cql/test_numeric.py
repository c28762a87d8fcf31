"""Text of numbers against decimal's and int's own, up to sizes where those refuse."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace_schemas.cql.numeric import integer_text, integer_value, scaled_text, scaled_value

SCALES = st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(-40, 40)


@given(st.integers())
def test_small_integers(value: int) -> None:
    assert integer_text(value) == str(value)
    assert integer_value(integer_text(value)) == value


@given(st.integers(2001, 20_000), st.integers(0, 1 << 64), st.sampled_from((1, -1)))
def test_large_integers(bits: int, noise: int, sign: int) -> None:
    value = sign * ((1 << bits) - noise)
    text = integer_text(value)
    assert integer_value(text) == value
    # Nine digits at a time, which no limit forbids.
    rest, chunks = abs(value), []
    while rest:
        rest, chunk = divmod(rest, 10**9)
        chunks.append(f"{chunk:09d}")
    assert text.lstrip("-") == "".join(reversed(chunks)).lstrip("0")
    assert text.startswith("-") == (sign < 0)


@given(st.integers(-(10**40), 10**40), SCALES)
@example(0, 0)
@example(0, 7)
@example(0, -1)
@example(123, 9)
@example(-123, 8)
def test_scaled_as_decimal_prints_it(unscaled: int, scale: int) -> None:
    # Decimal's to-scientific-string and BigDecimal.toString follow the same specification.
    expected = str(Decimal((int(unscaled < 0), tuple(int(digit) for digit in str(abs(unscaled))), -scale)))
    assert scaled_text(unscaled, scale) == expected
    assert scaled_value(expected) == (unscaled, scale)


@pytest.mark.parametrize(("text", "pair"), [("5e3", (5, -3)), ("+1", None), ("0.50", (50, 2)), ("-0", (0, 0))])
def test_other_texts(text: str, pair: tuple[int, int] | None) -> None:
    if pair is None:
        with pytest.raises(ValueError, match="written as digits"):
            scaled_value(text)
    else:
        assert scaled_value(text) == pair
