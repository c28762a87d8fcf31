"""Addresses against the texts of RFC 5952, and back."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.cql.scalars import address_bytes, address_text

TEXTS = [
    ("0.0.0.0", "00000000"),  # noqa: S104 - an address as data, nothing listens
    ("255.1.2.3", "ff010203"),
    ("::", "00" * 16),
    ("::1", "00" * 15 + "01"),
    ("1::", "0001" + "00" * 14),
    ("2001:db8::1:0:0:1", "20010db8000000000001000000000001"),  # the first of two equal runs
    ("2001:db8:0:1:1:1:1:1", "20010db8000000010001000100010001"),  # one group alone is not shortened
    ("2001:0:0:1::1", "20010000000000010000000000000001"),  # the longest run
    ("::ffff:1.2.3.4", "00000000000000000000ffff01020304"),
    ("::102:304", "00000000000000000000000001020304"),
]


@pytest.mark.parametrize(("text", "data"), TEXTS)
def test_canonical_text(text: str, data: str) -> None:
    assert address_text(bytes.fromhex(data)) == text
    assert address_bytes(text).hex() == data


@given(st.ip_addresses() | st.lists(st.sampled_from((0, 0, 1, 255)), min_size=16, max_size=16).map(bytes))
def test_text_leads_back(address: ipaddress.IPv4Address | ipaddress.IPv6Address | bytes) -> None:
    data = address if isinstance(address, bytes) else address.packed
    assert address_bytes(address_text(data)) == data
