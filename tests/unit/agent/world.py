"""The run loop with surroundings in memory: what outlives an agent, and agents that live in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import pytest

from tailrace.agent.limits import Limits
from tailrace.agent.loop import Agent
from tailrace.agent.ports import Environment
from tailrace.agent.tables import SelectionWatch
from tailrace.changes.transcode import Transcoder
from tailrace.history.events import decode_event
from tailrace.history.objects import Options
from tailrace.ops.health import HealthBoard
from tailrace.publish.routing import Router
from tailrace.schema.live import LiveSchema
from tailrace_common.kafka import Pace
from tailrace_common.selection import Selection
from tailrace_common.tracing.spans import TraceSpan
from tailrace_schemas.avro import decode, entry_from_record
from tailrace_schemas.change import Change, Op
from tailrace_schemas.table import Table
from tailrace_schemas.topics import Internal
from tests.support.capture import MemoryCapture, MemoryLog
from tests.support.clock import ManualClock
from tests.support.kafka import Faults, MemoryDestinations, MemoryKafka, MemoryPublisher
from tests.support.schema import MemorySchema, MemorySchemaLog
from tests.unit.mutations import deletion
from tests.unit.tables import table

ORDERS = table({"id": "text"}, name="orders")
NOTES = replace(table({"id": "text"}, name="notes", table_id=uuid4()), cdc=False)
ELSEWHERE = replace(table({"id": "text"}, name="x", keyspace="other", table_id=uuid4()), cdc=False)
LATE = uuid4()


@dataclass
class World:
    """What outlives the agent's process: log, Kafka, cluster. `live` starts one agent in it and runs it."""

    log: MemoryLog = field(default_factory=MemoryLog)
    kafka: MemoryKafka = field(default_factory=MemoryKafka)
    tables: list[Table] = field(default_factory=lambda: [ORDERS, NOTES, ELSEWHERE])
    health: HealthBoard = field(default_factory=lambda: HealthBoard(lambda: 0.0))
    clock: ManualClock = field(default_factory=ManualClock)
    limits: Limits = field(default_factory=lambda: Limits(changes=3, read=4))
    schema: LiveSchema | None = None
    milliseconds: Callable[[], int] | None = None
    selection: Selection = field(default_factory=Selection)
    release_unselected: bool = False
    pace: Pace | None = None
    trace: Callable[[], TraceSpan | None] = lambda: None
    keyspaces: dict[str, Options] = field(default_factory=dict)

    def live(
        self, faults: Faults | None = None, *, idle_waits: int = 3, on_wait: Callable[[], None] | None = None
    ) -> None:
        """Run an agent until it has waited so often, or until a fault."""
        faults = faults or Faults()
        reader = MemorySchema(self.tables, faults, options=self.keyspaces)
        schema = self.schema = LiveSchema(reader, MemorySchemaLog(self.log, faults))
        schema.learn()
        waited = 0

        def wait(seconds: float) -> None:
            nonlocal waited
            waited += 1
            self.clock.wait(seconds)
            if on_wait is not None:
                on_wait()

        router = Router("p", MemoryDestinations(self.kafka, faults), self.selection.wants, clock=self.clock)
        parts = Environment(
            cluster="c",
            publisher=lambda: MemoryPublisher(self.kafka, faults),
            capture=lambda resume: MemoryCapture(self.log, resume, faults),
            transcoder=Transcoder("p"),
            routing=router,
            schema=schema,
            health=self.health,
            clock=self.clock,
            milliseconds=self.milliseconds or (lambda: 1_700_000_000_000 + int(self.clock.now * 1000)),
            wait=wait,
            stop=lambda: waited >= idle_waits,
            selecting=SelectionWatch(self.selection, router, self.health, release_unselected=self.release_unselected),
            pace=self.pace or Pace(10, 600, self.clock),
            trace=self.trace,
        )
        Agent(parts, "h1", "dc1", self.limits).run()

    def keys(self) -> list[str]:
        """What a read_committed reader sees, in the order of commits: each change's partition key, T for a truncation's
        record."""
        return ["T" if change.op is Op.TRUNCATE else _text(change.key) for change in self.changes()]

    def told(self) -> list[str]:
        """What `.schema-changes` has."""
        return [str(decode_event(value)[1]) for which, _, value in self.kafka.notes if which is Internal.SCHEMA_CHANGES]

    def changes(self) -> list[Change]:
        """The same, decoded with what was announced."""
        schemas = {key: entry_from_record(key, value) for key, value in self.kafka.announced.items()}
        return [decode(record.value, schemas) for record in self.kafka.records]

    @property
    def position(self) -> tuple[int, int] | None:
        """Segment and offset that Kafka has."""
        at = self.kafka.resume.position
        return None if at is None else (at.segment, at.offset)


def world_with(payloads: Sequence[bytes], *, final: bool = True, **parts: Any) -> World:
    """One whose log has these mutations, in segment 1."""
    world = World(**parts)
    world.log.append(1, payloads, final=final)
    return world


def explain(world: World, *tables: Table) -> Callable[[], None]:
    """Something that lets the cluster have these tables, and the driver say so."""

    def come() -> None:
        for one in tables:
            if one not in world.tables:
                world.tables.append(one)
                assert world.schema is not None
                world.schema.hint()

    return come


def every_fault(live: Callable[[Faults], None], error: Callable[[], BaseException], *, one_in: int = 1) -> list[object]:
    """A fault at each arrival at each step that an undisturbed life makes; all but `one_in` so many are long.

    But for the first read of the schema: it is made before the loop, by the command, which retries it itself.
    """
    undisturbed = Faults()
    live(undisturbed)
    faults = [
        Faults(step, nth, error())
        for step, times in undisturbed.seen.items()
        for nth in range(1, times + 1)
        if (step, nth) != ("schema", 1)
    ]
    return [
        pytest.param(fault, marks=(pytest.mark.long,) if index % one_in else ()) for index, fault in enumerate(faults)
    ]


def _text(key: bytes | None) -> str:
    assert key is not None
    return key.decode()


def entries(names: str, of: Table = ORDERS) -> list[bytes]:
    """A mutation for each letter: that partition deleted."""
    return [deletion(of, name.encode()) for name in names]
