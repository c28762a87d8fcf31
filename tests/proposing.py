"""Proposing generations as agents do: by the first step of a keeper, or a proposal as such."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from tailrace.ops.health import HealthBoard
from tailrace.topology.keeper import RecordLog, RingKeeper, Surroundings, announcing, run_appending
from tailrace_common.topics import GenerationReader
from tailrace_schemas.generation_records import Proposal, PublishedGeneration
from tailrace_schemas.ring import Ring
from tests.support.clock import ManualClock


def take_first_step(
    ring: Ring, log: RecordLog, reader: GenerationReader, new_uuid: Callable[[], UUID]
) -> PublishedGeneration | None:
    """What an agent does about generations when it starts; the latest one then, if there is one."""
    clock = ManualClock()
    parts = Surroundings(host="a", ring=lambda: ring, clock=clock, new_uuid=new_uuid, health=HealthBoard(clock))
    run_appending(RingKeeper(parts).step(reader), log)
    return reader.latest


def publish(proposal: Proposal, log: RecordLog, reader: GenerationReader) -> PublishedGeneration | None:
    """Append a proposal, and read on to the end: the latest generation, this one or another."""
    run_appending(announcing(proposal), log)
    reader.refresh()
    return reader.latest
