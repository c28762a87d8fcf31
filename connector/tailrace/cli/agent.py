"""`tailrace agent`: the settings to the parts of one agent, which then runs until it is told to stop."""

from __future__ import annotations

import gc
import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, TypeVar
from uuid import uuid4

import typer
from stamina.instrumentation import set_on_retry_hooks

from tailrace.agent.loop import Agent
from tailrace.agent.outage import Outage
from tailrace.agent.parts import Limits, Parts
from tailrace.agent.selecting import SelectionWatch
from tailrace.capture.wakeup import Signal
from tailrace.capture.watch import Watch
from tailrace.changes.transcode import Transcoder
from tailrace.cli.cdc_raw import Care, exit_code
from tailrace.cli.interruption import ending_signals
from tailrace.cli.introduction import introduce
from tailrace.cli.mirroring import mirroring
from tailrace.cli.node_settings import NodeSettings, read_node_settings, require_node_directory
from tailrace.cli.own_directory import own_directory
from tailrace.cluster import Contact, LiveCluster, LocalNode, RingListener
from tailrace.commitlog.encryption import Keys
from tailrace.history.schema import SchemaHistory
from tailrace.ops.health import HealthBoard
from tailrace.ops.server import HealthServer
from tailrace.publish.destinations import SchemaDestinations
from tailrace.publish.kafka import KafkaLog, KafkaPublisher, KafkaTopics, Tenure
from tailrace.publish.routing import OwnIds, Router, SchemaStore
from tailrace.publish.selection import Selection
from tailrace.schema.ddl_log import SchemaLog
from tailrace.schema.live import LiveSchema
from tailrace.segments.kept import KeptSegments
from tailrace.segments.keys import keys_of_settings
from tailrace.segments.unindexed import Unindexed
from tailrace.topology.keeper import Retention, RingKeeper, Surroundings
from tailrace.topology.proposals import EntrySettings
from tailrace.topology.ring_watch import Delays
from tailrace.topology.thread import KeeperThread
from tailrace_common.build import log_build
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_common.http_server import serving
from tailrace_common.kafka import Pace, Sizes
from tailrace_common.settings import HEALTH_PORT, AgentSettings, ClusterSettings, SchemaSettings, Settings
from tailrace_common.topics.generations import GenerationReader
from tailrace_common.topics.schemas import SchemaReader
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.errors import FencedError, ServiceError, SettingsError
from tailrace_schemas.ring import RingError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import Internal, internal_topic

_LOG: Final = logging.getLogger("tailrace.agent")
if TYPE_CHECKING:
    from tailrace.publish.registry import RegistryStore

T = TypeVar("T")
_INTERNAL: Final = (
    Internal.OFFSETS,
    Internal.SCHEMAS,
    Internal.SCHEMA_HISTORY,
    Internal.SCHEMA_CHANGES,
    Internal.GENERATIONS,
    Internal.DEAD_LETTER,
    Internal.PROGRESS,
)
_RETRY_SECONDS: Final = 1.0
_DAY_MS: Final = 86_400_000
_OBJECTS_BETWEEN_COLLECTIONS: Final = 50_000
_RETRY_SECONDS_MOST: Final = 30.0


class _Stop:
    """Set by SIGTERM, SIGINT and SIGHUP: the agent ends after its current transaction."""

    def __init__(self, wakeup: Signal) -> None:
        self._wakeup = wakeup
        self.asked = False
        self.reason: str | None = None
        """Why another agent's start ends this one."""

    def __call__(self) -> bool:
        return self.asked

    def ask(self, number: int, _frame: object) -> None:
        _LOG.info("%s: ending after the current transaction", signal.Signals(number).name)
        self.asked = True
        self._wakeup.set()

    def fenced(self, reason: str) -> None:
        """End because another agent owns cdc_raw. Any thread."""
        self.reason, self.asked = reason, True
        self._wakeup.set()


@contextmanager
def _on_signals(stop: _Stop) -> Iterator[None]:
    before = {number: signal.signal(number, stop.ask) for number in ending_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def agent(
    config: SettingsFile = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Own cdc_raw though its mark names another, stopped, agent.")
    ] = False,
) -> None:
    """Publish this node's changes to Kafka, until SIGTERM, SIGINT or SIGHUP. Runs beside each Cassandra node.

    Reads the node's cdc_raw, releases what is published, and goes on where it stopped. Exit code 3: it ended in order,
    and something is quarantined, or went to dead letters; 4: and changes were lost; 5: another agent was started for
    this node, or owns its cdc_raw: do not restart in a loop.

    One agent owns a cdc_raw. After a change of topics.prefix, or of the node's host id, start it once with --take-over.

    Example: tailrace agent -c tailrace.toml
    """
    settings = settings_of(config)
    log_build(_LOG)
    keys = keys_of_settings(settings.agent)
    set_on_retry_hooks(())  # our own log says of a retry what matters
    wakeup = Signal()
    stop = _Stop(wakeup)
    with _on_signals(stop), ExitStack() as stack:
        health = HealthBoard(time.monotonic)
        listen = partial(HealthServer, health, settings.agent.health_address)
        stack.enter_context(serving(listen, settings.agent.health_port, HEALTH_PORT))
        _Start(settings, keys, wakeup, stop, health, stack, take_over).run()
        if stop.reason is not None:
            raise FencedError(stop.reason)
        code = exit_code(health.now)
    if code:
        raise typer.Exit(code)


@dataclass(frozen=True, slots=True)
class _Start:
    """What the services have to give before the loop can run; each is asked until it answers, or until `stop`."""

    settings: Settings
    keys: Keys
    wakeup: Signal
    stop: _Stop
    health: HealthBoard
    stack: ExitStack
    take_over: bool = False

    def run(self) -> None:
        hints: list[Callable[[], None]] = [self.wakeup.set]
        ring_hints: list[Callable[[bool], None]] = []

        def changed(what: str) -> None:
            _LOG.debug("schema event: %s", what)
            for hint in hints:
                hint()

        def ring_changed(what: str, changed: bool) -> None:
            _LOG.debug("ring event: %s", what)
            for hint in ring_hints:
                hint(changed)

        topics = topics_of(self.settings)  # it connects while Cassandra is asked
        cluster = self._until_done(lambda: self._connect(changed, ring_changed))
        node = None if cluster is None else self._until_done(cluster.check)
        if cluster is None or node is None:
            return
        introduce(self.health, self.settings, node)
        # Cassandra, which answers by now, has made it; and no other agent of this host is fenced yet.
        if self._until_done(lambda: self._require_directory(read_node_settings(cluster, node.release))) is None:
            return
        owned = self.stack.enter_context(
            own_directory(self.settings, node.host, take_over=self.take_over, lost=self.stop.fenced)
        )
        directory, kept = self.settings.agent.cdc_raw_directory, KeptSegments(Unindexed(self.keys))
        read = partial(read_node_settings, cluster, node.release)
        care = Care(self.settings.agent, node.host, self.health, read, kept)
        if owned.taken_from is not None:
            care.register.distrust()
        log = self.stack.enter_context(closing(SchemaLog(directory, kept, self.keys, care.spool)))
        # From now on no segment comes and goes unseen, however long the services take.
        self.stack.enter_context(Watch(directory, self.wakeup, kept.keep, care.register.appeared))
        self.stack.enter_context(closing(care.begin()))
        schema = LiveSchema(cluster, log)
        hints.insert(0, schema.hint)
        if self._until_done(lambda: (schema.learn(),)) is None:
            return
        router = self._until_done(lambda: self._router(node, topics))
        if router is None:
            return
        self.stack.enter_context(mirroring(self.settings, cluster, node.host, self.health))
        ring_hints.append(self._keep_generations(cluster, node, topics).stir)
        # What is made for changes is in no cycles, and goes by itself: looking for some took a seventh of the time.
        gc.freeze()
        gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, 10, 10)
        self._agent(node, schema, router, topics, care).run()

    def _connect(self, changed: Callable[[str], None], ring_changed: RingListener) -> LiveCluster:
        cluster = LiveCluster(contact_of(self.settings.cluster), changed, ring_changed)
        return self.stack.enter_context(closing(cluster))

    def _require_directory(self, node: NodeSettings) -> bool:
        require_node_directory(self.settings.agent.cdc_raw_directory, node)
        return True

    def _router(self, node: LocalNode, topics: KafkaTopics) -> Router:
        """What this node publishes, of the tables that the settings select."""
        settings = self.settings
        selection = Selection(settings.tables.include, settings.tables.exclude)
        publishes = settings.agent.publishes(node.datacenter)
        return open_router(settings, topics, lambda table: publishes and selection.wants(table), self.stack)

    def _selecting(self, node: LocalNode, router: Router) -> Callable[[SchemaHistory], bool]:
        """What judges the selection of tables; nothing where this datacenter leaves publishing to another."""
        tables = self.settings.tables
        if not self.settings.agent.publishes(node.datacenter):
            return lambda _: False
        selection = Selection(tables.include, tables.exclude)
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

    def _agent(self, node: LocalNode, schema: LiveSchema, router: Router, topics: KafkaTopics, care: Care) -> Agent:
        settings, tenure = self.settings, Tenure(uuid4().hex)
        pace = pace_of(settings)
        cluster = settings.cluster.name or node.cluster

        def publisher() -> KafkaPublisher:
            topics.refresh_limits(_INTERNAL)  # a refusal of theirs for its size ended the last one, perhaps
            return KafkaPublisher(
                settings.kafka.reveal(),
                prefix=settings.topics.prefix,
                cluster=cluster,
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

        parts = Parts(
            cluster=cluster,
            publisher=publisher,
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
        )
        limits = Limits(
            changes=settings.agent.transaction_changes,
            seconds=settings.agent.transaction_milliseconds / 1000,
            poll_seconds=poll_seconds_of(settings.agent),
            progress_seconds=settings.agent.progress_seconds,
            parked_seconds=settings.agent.park_seconds,
            dead_letter_payloads=settings.agent.dead_letter_payloads,
        )
        return Agent(parts, node.host, node.datacenter, limits)

    def _stopped(self) -> bool:
        """Whether to stop, for what waits for Kafka: waiting is no standstill, however long a large mutation takes."""
        self.health.alive()
        return self.stop()

    def _until_done(self, attempt: Callable[[], T]) -> T | None:
        """The result of the first attempt that succeeds; None when the agent is to stop before."""
        seconds, outage = _RETRY_SECONDS, Outage(self.health, time.monotonic)
        while not self.stop():
            self.health.alive()
            try:
                result = attempt()
            except (ServiceError, RingError) as error:
                outage.failed(error)
                self.wakeup.wait(seconds)
                seconds = min(2 * seconds, _RETRY_SECONDS_MOST)
                continue
            outage.over()
            return result
        return None


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


def poll_seconds_of(settings: AgentSettings) -> float:
    """How long to wait where nothing was found."""
    early = settings.early_milliseconds / 1000
    return min(early, settings.poll_seconds) if settings.early else settings.poll_seconds


def entries_of(settings: Settings) -> EntrySettings:
    """How the settings want entries made."""
    return EntrySettings(settings.generations.streams_per_entry, settings.generations.ignore_msb)


def topics_of(settings: Settings) -> KafkaTopics:
    """The topics of the settings. Raises SettingsError."""
    return KafkaTopics(settings.kafka.reveal(), settings.topics, create=settings.topics.create)


def sizes_of(settings: Settings, topics: KafkaTopics) -> Sizes:
    """What bounds a producer, as the settings and the topics that are ensured say."""
    return Sizes(
        buffer=settings.agent.buffer_mebibytes << 20, largest=settings.topics.max_message_bytes, limits=topics.limits
    )


def pace_of(settings: Settings, rate: float | None = None) -> Pace:
    """What producers learn of Kafka's speed, within the limits of the settings; from this rate on, where one is given,
    in bytes a second."""
    agent = settings.agent
    return Pace(agent.transaction_timeout_seconds, agent.longest_transaction_seconds, time.monotonic, rate)


def open_router(settings: Settings, topics: KafkaTopics, wants: Callable[[Table], bool], stack: ExitStack) -> Router:
    """Topics, schemas known so far, and what publishes more of them; `stack` ends what has connections.

    Raises ServiceError, SettingsError.
    """
    kafka, prefix = settings.kafka.reveal(), settings.topics.prefix
    log = KafkaLog(kafka, internal_topic(prefix, Internal.SCHEMAS), largest=settings.topics.max_message_bytes)
    log.open()
    topics.ensure_internal(_INTERNAL)
    with SchemaReader(kafka, prefix) as reader:
        reader.refresh()
        store = stack.enter_context(closing(schema_store(settings.schemas, reader)))
        destinations = SchemaDestinations(prefix, topics, log, reader)
        return Router(prefix, destinations, wants, store, settings.topics.key, forms=settings.avro.forms())


def schema_store(settings: SchemaSettings, known: Mapping[bytes, SchemaEntry]) -> SchemaStore:
    """Who names schemas, as the settings say; `known` is what `.schemas` has. Raises SettingsError."""
    return OwnIds() if settings.store == "topic" else registry_store(settings, known)


def registry_store(settings: SchemaSettings, known: Mapping[bytes, SchemaEntry]) -> RegistryStore:
    """The registry that the settings name. Raises SettingsError."""
    try:
        from tailrace.publish.registry import RegistryStore
    except ImportError as cause:
        raise SettingsError(f"schemas.store needs {cause.name}: pip install 'tailrace[registry]'") from None
    return RegistryStore(settings.registry.reveal(), settings.subjects, settings.register_schemas, known)


def contact_of(settings: ClusterSettings) -> Contact:
    """How the settings say to reach the node."""
    password = None if settings.password is None else settings.password.get_secret_value()
    return Contact(
        hosts=settings.contact_points,
        port=settings.port,
        username=settings.username,
        password=password,
        tls=settings.tls_context("cluster"),
        protocol_version=settings.protocol_version,
        connect_seconds=settings.connect_timeout_seconds,
        request_seconds=settings.request_timeout_seconds,
    )
