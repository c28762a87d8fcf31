"""RabbitmqClient: publishes many messages at once on one connection, and has each confirmed."""

from __future__ import annotations

import hashlib
import logging
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import takewhile, zip_longest
from time import monotonic
from typing import Any, Final

import amqp
from amqp.exceptions import AMQPError

from tailrace_common.sections.template import fit
from tailrace_common.tls import tls_context
from tailrace_common.unreachable import unreachable
from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.changelog.routes import Route, RouteError
from tailrace_spark.sinks.changelog.sink import OutgoingRecord, key_of
from tailrace_spark.sinks.rabbitmq.settings import LONGEST_NAME, RabbitmqSinkSettings

_LATEST: Final = 253_402_300_799  # the end of the year 9999, beyond which clients cannot say a date

Delivery = tuple[str, tuple[str, str]]
"""A message's id and its route: an exchange ("": the default one, whose routing keys are queues) and a routing key."""
EXCHANGE_TYPE: Final = "x-consistent-hash"
_MOST_BYTES: Final = 64 << 20  # of bodies that are not confirmed; one message may have more
_CLOSING_SECONDS: Final = 5.0
_NACK: Final = "RabbitMQ refuses a message (nack): a queue is full, or cannot keep it now; the batch is held"


@dataclass(frozen=True, slots=True)
class Message:
    """One message: what is the same, however often it comes. Of one `lane` one message at a time is under way.

    Its `properties` are named as the library has them.
    """

    delivery: Delivery
    lane: str
    properties: Mapping[str, object]
    body: bytes = field(repr=False)


def messages_of(
    record: OutgoingRecord, exchange: str, queues: Sequence[str], route: Route | None = None
) -> list[Message]:
    """A change as one message to the exchange; a truncation, which is of all keys, as one to each queue, of one id.

    It is routed by its partition key as JSON. With a `route` all go to the exchange, by that. Raises as Route does, and
    RouteError for too long a key.
    """
    record_id, key = record.record_id, key_of(record, primary=False)
    if route is not None:
        targets = [(exchange, _required(route.of(record.change)))]
    else:
        targets = [("", queue) for queue in queues] if key is None else [(exchange, fit(key.decode(), LONGEST_NAME))]
    # A topic's name has no character that JSON escapes.
    record_key = f'["{record_id.topic}",{record_id.partition},{record_id.offset}]'
    identity = hashlib.blake2b(record_key.encode(), digest_size=16).hexdigest()
    seconds = record.written // 1_000_000
    properties = {
        "content_type": "application/json",
        "application_headers": {
            "topic": record_id.topic,
            "partition": record_id.partition,
            "offset": record_id.offset,
            "table": str(record.change.table),
        },
        "delivery_mode": 2,  # persistent
        "message_id": identity,
        "timestamp": seconds if 0 <= seconds <= _LATEST else None,
        "type": f"tailrace.change.{record.change.op.value}",
        "app_id": "tailrace",
    }
    return [
        Message((identity, target), target[1] if key is None else key.decode(), properties, record.json)
        for target in targets
    ]


def rounds_of(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """The messages in as few rounds as can be: in each at most one of a lane, those of a lane in their order."""
    lanes: dict[str, list[Message]] = {}
    for message in messages:
        lanes.setdefault(message.lane, []).append(message)
    for together in zip_longest(*lanes.values()):
        yield [message for message in together if message is not None]


def _required(key: str) -> str:
    if len(key.encode()) > LONGEST_NAME:
        raise RouteError(f"its routing key would have more than {LONGEST_NAME} bytes")
    return key


class RabbitmqClient:
    """Publishes messages in rounds: all of one are under way at once, of each lane one. One thread calls it.

    For RabbitMQ may refuse one message and take the next: were both of one key under way, they would change places.
    What was confirmed since `forget` is not published again, by whatever connection.
    """

    def __init__(self, name: str, settings: RabbitmqSinkSettings) -> None:
        """`name` is that of [sink.NAME], for messages. Raises SettingsError for certificates that are none."""
        # Whatever it logs of a connection our errors report too, once and without a traceback.
        logging.getLogger("amqp").setLevel(logging.CRITICAL)
        if settings.tls:
            tls_context(f"sink.{name}", settings.tls_ca_file)
        self._name = name
        self._settings = settings
        self._gathered: list[Message] = []
        self._unanswered: dict[int, Message] = {}
        self._returned: set[Delivery] = set()
        self._confirmed: set[Delivery] = set()
        self._size = self._tag = 0
        self._doing = self._refusal = self._blocked = ""
        self._heard = 0.0
        self._connection: Any = None
        self._channel: Any = None
        # A thread for each connection answers heartbeats while no changes come.
        self._lock = threading.RLock()
        self._ended = threading.Event()

    def reach(self) -> None:
        """Connect, look at what is not declared by us, and leave. Raises ServiceError."""
        self.drop()
        try:
            with self._in_our_words():
                self._connect(declare=False)
        finally:
            self.drop()

    def begin(self) -> None:
        """Be rid of a connection that was lost in the meantime."""
        if self._connection is not None:
            try:
                self._read(0)
            except (AMQPError, OSError):
                self.drop()

    def publish(self, message: Message) -> None:
        """Take it in; it goes out with others, at the latest when all is settled. Raises ServiceError."""
        if message.delivery not in self._confirmed:
            self._gathered.append(message)
            self._size += len(message.body)
            if len(self._gathered) == self._settings.in_flight or self._size >= _MOST_BYTES:
                self.settle()

    def settle(self) -> None:
        """Return when every message is confirmed. Raises ServiceError."""
        with self._in_our_words(), self._lock:
            if self._gathered and self._connection is None:
                self._connect(declare=self._settings.declare)
            for messages in rounds_of(self._gathered):
                self._publish(messages)
            self._gathered.clear()
            self._size = 0

    def forget(self) -> None:
        """What was confirmed will not come again."""
        self._confirmed.clear()

    def drop(self) -> None:
        """Close the connection; what RabbitMQ has not confirmed by then it may have taken or not."""
        self._ended.set()
        with self._lock:
            connection, self._connection = self._connection, None
            self._gathered.clear()
            self._size = 0
            if connection is not None:
                with suppress(AMQPError, OSError):
                    if connection.connected and not self._unanswered:  # else RabbitMQ answers no goodbye either
                        connection.sock.settimeout(_CLOSING_SECONDS)
                        connection.close()
                connection.collect()

    def _publish(self, messages: list[Message]) -> None:
        """One round: return when RabbitMQ has answered for each; as long as it goes on answering."""
        for message in messages:
            _, (exchange, key) = message.delivery
            self._tag += 1
            self._unanswered[self._tag] = message
            content = amqp.Message(message.body, **message.properties)
            self._channel.basic_publish(content, exchange, key, mandatory=True)
        seconds = self._settings.timeout_seconds
        self._heard = monotonic()
        while self._unanswered:
            self._read(min(seconds, self._settings.heartbeat_seconds / 4))
            if monotonic() - self._heard >= seconds:
                raise self._error(self._refusal or f"no confirmation within {seconds:g} s{self._blocked}")
        if self._refusal:
            raise self._error(self._refusal)

    def _read(self, seconds: float) -> None:
        """Take what RabbitMQ says within so many seconds, and answer heartbeats. Raises what the library does."""
        with self._lock:
            if not self._connection.connected:
                raise ConnectionResetError("the connection was lost")
            with suppress(TimeoutError):
                self._connection.blocking_read(seconds)
            self._connection.heartbeat_tick()

    def _stay(self, ended: threading.Event) -> None:
        """Answer heartbeats until the connection is dropped; that it was lost is seen by who uses it next."""
        while not ended.wait(self._settings.heartbeat_seconds / 4):
            with self._lock, suppress(AMQPError, OSError):
                if not ended.is_set():
                    self._read(0)

    def _answered(self, tag: int, multiple: bool) -> set[Delivery]:
        self._heard = monotonic()
        tags = list(takewhile(lambda sent: sent <= tag, self._unanswered)) if multiple else [tag]
        return {self._unanswered.pop(sent).delivery for sent in tags}

    def _on_ack(self, *answer: Any) -> None:
        self._confirmed |= self._answered(*answer) - self._returned

    def _on_nack(self, *answer: Any) -> None:
        self._answered(*answer)
        self._refusal = self._refusal or _NACK

    def _on_return(self, _error: object, exchange: str, key: str, message: Any) -> None:
        """Of a message that no queue takes: that it was dropped is then confirmed."""
        self._returned.add((message.properties["message_id"], (exchange, key)))
        headers = message.properties["application_headers"]
        record = f"{headers['topic']}, partition {headers['partition']}, offset {headers['offset']}"
        target, todo = (f"exchange {exchange}", "bind queues to it") if exchange else (f"queue {key}", "make it")
        self._refusal = (
            self._refusal or f"a message is routed to no queue by {target} ({record}): {todo}, or set declare = true"
        )

    def _on_blocked(self, *_: object) -> None:
        self._blocked = "; RabbitMQ takes no messages: it lacks memory or disk space"

    def _on_unblocked(self) -> None:
        self._blocked = ""

    def _connect(self, *, declare: bool) -> None:
        self._unanswered.clear()
        self._returned.clear()
        self._tag = 0
        self._doing = self._refusal = self._blocked = ""
        self._connection = self._new_connection()
        self._connection.connect()
        self._channel = self._connection.channel()
        self._channel.confirm_select()
        for event, listener in (("ack", self._on_ack), ("nack", self._on_nack), ("return", self._on_return)):
            self._channel.events[f"basic_{event}"].add(listener)
        if declare:
            self._declare()
        elif not self._settings.declare:
            self._look()
        self._doing = ""
        self._ended = threading.Event()
        threading.Thread(target=self._stay, args=(self._ended,), name="tailrace-rabbitmq", daemon=True).start()

    def _new_connection(self) -> Any:
        settings, seconds = self._settings, self._settings.timeout_seconds
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        context = {"cafile": settings.tls_ca_file, "check_hostname": True}
        tls = {"context": context, "server_hostname": settings.host, "do_handshake_on_connect": False}
        return amqp.Connection(
            f"{host}:{settings.port}",
            login_method="PLAIN",
            userid=settings.username,
            password="guest" if settings.password is None else settings.password.get_secret_value(),
            virtual_host=settings.vhost,
            ssl=tls if settings.tls else False,
            heartbeat=settings.heartbeat_seconds,
            connect_timeout=seconds,
            read_timeout=seconds,
            write_timeout=seconds,
            # By default a network that is silent for a second ends the connection.
            socket_settings={socket.TCP_USER_TIMEOUT: int(1000 * seconds)},
            client_properties={"connection_name": f"tailrace sink {self._name}"},
            on_blocked=self._on_blocked,
            on_unblocked=self._on_unblocked,
        )

    def _declare(self) -> None:
        """Make the exchange and its queues, or see that they are as we would make them."""
        exchange = self._settings.exchange
        self._doing = f"exchange {exchange}"
        self._channel.exchange_declare(exchange, EXCHANGE_TYPE, durable=True, auto_delete=False)
        # A queue that is limited by a policy is to refuse what is too much, not to drop what it has.
        arguments = {"x-queue-type": self._settings.queue_type, "x-overflow": "reject-publish"}
        # The exchange counts its bindings in the order in which they were made, and in that of their names once
        # RabbitMQ was started again: were these two different, keys would then change their queues.
        for queue in sorted(self._settings.queue_names, key=str.encode):
            self._doing = f"queue {queue}"
            self._channel.queue_declare(queue, durable=True, auto_delete=False, arguments=arguments)
            # By the weight 1, as all: each gets the same share of the keys.
            self._channel.queue_bind(queue, exchange, routing_key="1")

    def _look(self) -> None:
        """See that the exchange is there, and its queues where changes are spread over them."""
        self._doing = f"exchange {self._settings.exchange}"
        self._channel.exchange_declare(self._settings.exchange, EXCHANGE_TYPE, passive=True)
        for queue in () if self._settings.routing_key is not None else self._settings.queue_names:
            self._doing = f"queue {queue}"
            self._channel.queue_declare(queue, passive=True)

    @contextmanager
    def _in_our_words(self) -> Iterator[None]:
        """Raise ServiceError for errors of the library."""
        try:
            yield
        except (TimeoutError, BlockingIOError):
            raise self._error(f"no answer within {self._settings.timeout_seconds:g} s{self._blocked}") from None
        except OSError as error:
            raise self._error(error.strerror or str(error)) from None
        except AMQPError as error:
            reason = f"{error.reply_code} {error.reply_text}" if error.reply_code else str(error)
            raise self._error(self._explained(error.reply_code, reason)) from None

    def _explained(self, code: int, reason: str) -> str:
        """What to do about an error of RabbitMQ's, by its code; its own words behind that."""
        doing = self._doing
        if code == 404:
            missing = doing or "what it publishes to"
            return f"{missing} is missing in vhost {self._settings.vhost}: make it, or set declare = true: {reason}"
        if code == 503 and EXCHANGE_TYPE in reason:
            plugin = "rabbitmq_consistent_hash_exchange"
            return f"{doing}: RabbitMQ lacks a plugin: rabbitmq-plugins enable {plugin}: {reason}"
        if code == 406 and doing:
            return f"{doing} exists, made otherwise; with declare = false it is used as it is: {reason}"
        if code == 406 and "max size" in reason:
            return f"set largest_message to RabbitMQ's max_message_size: {reason}"
        return f"{doing}: {reason}" if doing else reason

    def _error(self, words: str) -> ServiceError:
        location = self._settings.location
        return unreachable(location, words, "RabbitMQ") or ServiceError(f"{location}: {words}")
