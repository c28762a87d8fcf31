"""Proposals for rings, as tests want them."""

from __future__ import annotations

from uuid import UUID

from tailrace_schemas.generation_records import Proposal
from tailrace_schemas.ring import Ring, ring_seed
from tailrace_schemas.streams import build_generation


def proposal(ring: Ring, predecessor: int | None, timestamp: int, streams: int = 1) -> Proposal:
    """The proposal of a ring with this very timestamp."""
    generation = build_generation(ring, streams, timestamp=timestamp, seed=ring_seed(ring, predecessor))
    return Proposal(uuid=UUID(int=timestamp), predecessor=predecessor, ring=ring, generation=generation)
