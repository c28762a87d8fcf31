"""One agent of the settings: waits for its services, builds its parts and runs its loop."""

from __future__ import annotations

import gc
import logging
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from os import getpid
from socket import gethostname
from typing import Final, TypeVar
from uuid import UUID, uuid4

from tailrace.agent.limits import Limits
from tailrace.agent.loop import Agent
from tailrace.agent.ports import Environment
from tailrace.agent.stalls import Outage
from tailrace.agent.tables import SelectionWatch
from tailrace.assembly.cdc_raw import Care
from tailrace.assembly.node import (
    NodeSettings,
    introduce,
    own_directory,
    read_node_settings,
    require_node_directory,
    services_of,
)
from tailrace.assembly.services import (
    INTERNAL_TOPICS,
    entries_of,
    mirroring,
    open_router,
    pace_of,
    poll_seconds_of,
    sizes_of,
    topics_of,
)
from tailrace.capture.cdcraw import Signal, Watch
from tailrace.changes.transcode import Transcoder
from tailrace.cluster import LiveCluster, LocalNode
from tailrace.commitlog.blocks import Keys
from tailrace.driver import RingListener
from tailrace.history.schema import SchemaHistory
from tailrace.ops.health import HealthBoard
from tailrace.publish.kafka import KafkaLog, KafkaPublisher, KafkaTopics, Tenure
from tailrace.publish.kafka.topics import log_recreated
from tailrace.publish.routing import Router
from tailrace.schema.ddl_log import SchemaLog
from tailrace.schema.live import LiveSchema
from tailrace.segments.kept import KeptSegments, Unindexed
from tailrace.topology.keeper import KeeperThread, Retention, RingKeeper, Surroundings
from tailrace.topology.ring_watch import Delays
from tailrace_common.backoff import Backoff, Waits
from tailrace_common.kafka import Pace
from tailrace_common.settings import Settings
from tailrace_common.topics import GenerationReader
from tailrace_common.tracing import open_tracer
from tailrace_common.tracing.spans import TraceSpan
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.ring import RingError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import Internal, internal_topic

_LOG: Final = logging.getLogger("tailrace.agent")
T = TypeVar("T")
_WAITS: Final = Waits(1.0, 30.0)
_DAY_MS: Final = 86_400_000
_OBJECTS_BETWEEN_COLLECTIONS: Final = 50_000


class Stop:
    """Set by SIGTERM, SIGINT and SIGHUP: the agent ends after its current transaction."""

    def __init__(self, wakeup: Signal) -> None:
        self._wakeup = wakeup
        self.asked = False
        self.reason: str | None = None
        """Why another agent's start ends this one."""

    def __call__(self) -> bool:
        return self.asked

    def ask(self, signal_number: int, _frame: object) -> None:
        _LOG.info("%s: ending after the current transaction", signal.Signals(signal_number).name)
        self.asked = True
        self._wakeup.set()

    def fenced(self, reason: str) -> None:
        """End because another agent owns cdc_raw. Any thread."""
        self.reason, self.asked = reason, True
        self._wakeup.set()


@dataclass(frozen=True, slots=True)
class AgentStart:
    """What the services have to give before the loop can run; each is asked until it answers, or until `stop`."""

    settings: Settings
    keys: Keys
    wakeup: Signal
    stop: Stop
    health: HealthBoard
    stack: ExitStack
    take_over: bool = False

    def run(self) -> None:
        hints: list[Callable[[], None]] = [self.wakeup.set]
        ring_hints: list[Callable[[bool], None]] = []

        def changed(event: str) -> None:
            _LOG.debug("schema event: %s", event)
            for hint in hints:
                hint()

        def ring_changed(event: str, changed: bool) -> None:
            _LOG.debug("ring event: %s", event)
            for hint in ring_hints:
                hint(changed)

        topics = topics_of(self.settings, self.topic_recreated)  # it connects while Cassandra is asked
        cassandra, kafka = services_of(self.settings)
        cluster = self._until_done(lambda: self._connect(changed, ring_changed), cassandra)
        node = None if cluster is None else self._until_done(cluster.check, cassandra)
        if cluster is None or node is None:
            return
        name = introduce(self.health, self.settings, node, cluster.known_address(node.host))
        # Cassandra, which answers by now, has made it; and no other agent of this host is fenced yet.
        read = partial(read_node_settings, cluster, node.release)
        if self._until_done(lambda: self._require_directory(read()), cassandra) is None:
            return
        care, log = self._own_directory(node, read)
        schema = LiveSchema(cluster, log)
        hints.insert(0, schema.hint)
        if self._until_done(lambda: (schema.learn(),), cassandra) is None:
            return
        router = self._until_done(lambda: self._router(node, topics, schema), kafka)
        if router is None:
            return
        self.stack.enter_context(mirroring(self.settings, cluster, node.host, self.health))
        ring_hints.append(self._keep_generations(cluster, node, topics).stir)
        # Objects made for changes are in no cycles: counting references frees them. The collector took a seventh of
        # the time.
        gc.freeze()
        gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, 10, 10)
        self._agent(node, name, schema, router, topics, care).run()

    def _connect(self, changed: Callable[[str], None], ring_changed: RingListener) -> LiveCluster:
        cluster = LiveCluster(self.settings.cluster, changed, ring_changed)
        return self.stack.enter_context(closing(cluster))

    def _require_directory(self, node: NodeSettings) -> bool:
        require_node_directory(self.settings.agent.cdc_raw_directory, node)
        return True

    def topic_recreated(self, topic: str, words: str) -> None:
        """Note that somebody deleted a topic under this agent: in the log, in `/status` until it ends, in a metric."""
        log_recreated(topic, words)
        self.health.count(topics_recreated=1)
        self.health.degrade(f"topic {topic}", words)

    def _own_directory(self, node: LocalNode, read: Callable[[], NodeSettings]) -> tuple[Care, SchemaLog]:
        """Own cdc_raw, and watch it: from now on no segment comes and goes unseen, however long the services take."""
        owned = self.stack.enter_context(
            own_directory(self.settings, node.host, take_over=self.take_over, lost=self.stop.fenced)
        )
        directory, kept_segments = self.settings.agent.cdc_raw_directory, KeptSegments(Unindexed(self.keys))
        care = Care(self.settings.agent, node.host, self.health, read, kept_segments)
        if owned.taken_from is not None:
            care.register.distrust()
        log = self.stack.enter_context(closing(SchemaLog(directory, kept_segments, self.keys, care.spool)))
        self.stack.enter_context(Watch(directory, self.wakeup, kept_segments.keep, care.register.appeared))
        self.stack.enter_context(care.begin())
        return care, log

    def _router(self, node: LocalNode, topics: KafkaTopics, schema: LiveSchema) -> Router:
        """What this node publishes, of the tables that the settings select."""

        def wants(table: Table) -> bool:
            return publishes and selection.wants(table)

        def newest(table_id: UUID) -> Table | None:
            return schema.history.newest(table_id)

        settings = self.settings
        selection = settings.tables.selection
        publishes = settings.agent.publishes(node.datacenter)
        return open_router(settings, topics, wants, self.stack, newest)

    def _selecting(self, node: LocalNode, router: Router) -> Callable[[SchemaHistory], bool]:
        """What judges the selection of tables; nothing where this datacenter leaves publishing to another."""
        tables = self.settings.tables
        if not self.settings.agent.publishes(node.datacenter):
            return lambda _: False
        selection = tables.selection
        return SelectionWatch(selection, router, self.health, release_unselected=tables.release_unselected)

    def _keep_generations(self, cluster: LiveCluster, node: LocalNode, topics: KafkaTopics) -> KeeperThread:
        """From now on the ring has its generation, the first one too, while the agent runs."""
        settings, kafka = self.settings.generations, self.settings.kafka.reveal()
        topic = internal_topic(self.settings.topics.prefix, Internal.GENERATIONS)
        days = settings.retention_days
        keeper = RingKeeper(
            Surroundings(
                host=node.host,
                ring=cluster.ring,
                clock=time.monotonic,
                new_uuid=uuid4,
                health=self.health,
                entries=entries_of(self.settings),
                delays=Delays(settings.ring_delay_seconds, settings.poll_seconds),
                retention=None if days is None else Retention(round(days * _DAY_MS), topics.retentions, _milliseconds),
            )
        )
        thread = KeeperThread(keeper, lambda: GenerationReader.open(kafka, topic), KafkaLog(kafka, topic), self.health)
        return self.stack.enter_context(thread)

    def _agent(
        self, node: LocalNode, name: str, schema: LiveSchema, router: Router, topics: KafkaTopics, care: Care
    ) -> Agent:
        settings, tenure = self.settings, Tenure(f"{gethostname()}, pid {getpid()}, {uuid4().hex}")
        pace = pace_of(settings)
        environment = Environment(
            cluster=settings.cluster.name or node.cluster,
            publisher=lambda: self._publisher(node, topics, tenure, pace),
            capture=lambda resume: care.capture(resume, self.keys),
            transcoder=Transcoder(settings.topics.prefix, settings.avro.forms()),
            routing=router,
            schema=schema,
            health=self.health,
            clock=time.monotonic,
            milliseconds=_milliseconds,
            wait=self.wakeup.wait,
            stop=self.stop,
            selecting=self._selecting(node, router),
            pace=pace,
            name=name,
            trace=self._trace(node),
        )
        limits = Limits(
            changes=settings.agent.transaction_changes,
            seconds=settings.agent.transaction_milliseconds / 1000,
            poll_seconds=poll_seconds_of(settings.agent),
            progress_seconds=settings.agent.progress_seconds,
            parked_seconds=settings.agent.park_seconds,
            dead_letter_payloads=settings.agent.dead_letter_payloads,
        )
        return Agent(environment, node.host, node.datacenter, limits)

    def _trace(self, node: LocalNode) -> Callable[[], TraceSpan | None]:
        """What begins the spans of transactions; nothing where the settings ask for none."""
        traces, cluster = self.settings.traces, self.settings.cluster.name or node.cluster
        about = {"tailrace.cluster": cluster, "tailrace.host": node.host, "tailrace.datacenter": node.datacenter}
        tracer = open_tracer(traces.endpoint, "tailrace-agent", about, traces.sample_ratio)
        if tracer is None:
            return lambda: None
        self.stack.callback(tracer.close)
        return partial(tracer.begin, "tailrace.publish")

    def _publisher(self, node: LocalNode, topics: KafkaTopics, tenure: Tenure, pace: Pace) -> KafkaPublisher:
        topics.refresh_limits(INTERNAL_TOPICS)  # a refusal of theirs for its size ended the last one, perhaps
        settings = self.settings
        return KafkaPublisher(
            settings.kafka.reveal(),
            prefix=settings.topics.prefix,
            cluster=settings.cluster.name or node.cluster,
            host=node.host,
            clock=time.monotonic,
            timeout=settings.agent.transaction_timeout_seconds,
            sizes=sizes_of(settings, topics),
            delivery=settings.agent.delivery,
            tenure=tenure,
            verify=topics.require_unchanged,
            pace=pace,
            stop=self._stopped,
        )

    def _stopped(self) -> bool:
        """Whether to stop, for what waits for Kafka: waiting is no standstill, however long a large mutation takes."""
        self.health.alive()
        return self.stop()

    def _until_done(self, attempt: Callable[[], T], service: str) -> T | None:
        """The result of the first attempt that succeeds; None when the agent is to stop before.

        `service` is what the attempt asks, with the settings that say where it is.
        """
        backoff, outage = Backoff(_WAITS), Outage(self.health, time.monotonic)
        while not self.stop():
            self.health.alive()
            try:
                with outage.attempting(service):
                    result = attempt()
            except (ServiceError, RingError) as error:
                outage.failed(error)
                self.wakeup.wait(backoff.next())
                continue
            outage.over()
            return result
        return None


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000
