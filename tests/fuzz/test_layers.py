"""The seeds of the fuzzer, and every case that it found, without the fuzzer."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.commitlog.descriptor import read_descriptor
from tests.fuzz.kept import CASES
from tests.fuzz.layers import LAYERS, header, result_of, run, seeds
from tests.properties import examples

SEEDS = list(seeds())


@pytest.mark.slow
@pytest.mark.parametrize("layer", range(len(LAYERS)))
def test_every_layer_has_seeds_and_takes_them(layer: int) -> None:
    own = [seed for seed in SEEDS if seed[0] == layer]
    assert own
    for seed in own:
        run(seed)


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_what_was_found_stays_found(case: Path) -> None:
    run(case.read_bytes())


def test_the_seeds_reach_what_they_are_for() -> None:
    """Were the checksums wrong, everything would be refused at the door."""
    assert read_descriptor(header(8, b"{}")).version == 8
    assert any(isinstance(messages := result_of(seed), list) and messages for seed in SEEDS if seed[0] == 3)


@pytest.mark.slow
@given(st.sampled_from(SEEDS), st.data())
@settings(max_examples=examples(52), deadline=None)
def test_damaged_seeds(seed: bytes, data: st.DataObject) -> None:
    damaged = bytearray(seed)
    for at in data.draw(st.lists(st.integers(2, max(2, len(seed) - 1)), min_size=1, max_size=5)):
        if at < len(damaged):
            damaged[at] = data.draw(st.integers(0, 255))
    run(bytes(damaged[: data.draw(st.integers(2, len(damaged)))]))
