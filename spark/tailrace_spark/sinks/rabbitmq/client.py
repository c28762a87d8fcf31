"""RabbitMQ's client: one connection in a thread of its own, on which every message is confirmed."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import pika
from pika.exceptions import ChannelClosed, ConnectionClosed

from tailrace_common.tls import tls_context
from tailrace_common.unreachable import unreachable
from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.rabbitmq.messages import Lanes, Message, Route
from tailrace_spark.sinks.rabbitmq.settings import RabbitmqSinkSettings

EXCHANGE_TYPE: Final = "x-consistent-hash"
_MOST_BYTES: Final = 64 << 20  # of bodies that are not confirmed; one message may have more
_CLOSING_SECONDS: Final = 5.0

Step = Callable[[Any, Callable[..., None]], None]
"""Asks a channel for something, and has the answer call back."""


class RabbitmqClient:
    """Publishes messages, each of a route when the one before it is confirmed; one thread calls it.

    The connection lives in another thread, which answers heartbeats while no changes come. What was confirmed since
    `forget` is not published again, by whatever connection.
    """

    def __init__(self, name: str, settings: RabbitmqSinkSettings) -> None:
        """`name` is that of [sink.NAME], for messages. Raises SettingsError for certificates that are none."""
        # Whatever it logs of a connection our errors report too, once and without a traceback.
        logging.getLogger("pika").setLevel(logging.CRITICAL)
        self._settings = settings
        self._parameters = _parameters(name, settings)
        self._session: _Session | None = None
        self._confirmed: set[tuple[str, Route]] = set()

    def reach(self) -> None:
        """Connect, look at what is not declared by us, and leave. Raises ServiceError."""
        session = _Session(self._settings, self._parameters, set())
        try:
            session.open([] if self._settings.declare else list(_look(self._settings)))
        finally:
            session.close()

    def begin(self) -> None:
        """Be rid of a connection that was lost in the meantime."""
        if self._session is not None and self._session.failed:
            self.drop()

    def publish(self, message: Message) -> None:
        """Have it published, when there is room among those not confirmed. Raises ServiceError."""
        if (message.identity, message.route) in self._confirmed:
            return
        if self._session is None:
            session = _Session(self._settings, self._parameters, self._confirmed)
            try:
                session.open(list(_declare(self._settings) if self._settings.declare else _look(self._settings)))
            except BaseException:
                session.close()
                raise
            self._session = session
        self._session.publish(message)

    def settle(self) -> None:
        """Return when every message is confirmed. Raises ServiceError."""
        if self._session is not None:
            self._session.settle()

    def forget(self) -> None:
        """What was confirmed will not come again."""
        self._confirmed.clear()

    def drop(self) -> None:
        """Close the connection; what RabbitMQ has not confirmed by then it may have taken or not."""
        session, self._session = self._session, None
        if session is not None:
            session.close()


class _Session:
    """One connection with one channel. Its thread and the caller's share what `_changed` guards."""

    def __init__(self, settings: RabbitmqSinkSettings, parameters: Any, confirmed: set[tuple[str, Route]]) -> None:
        self._settings = settings
        self._parameters = parameters
        self._confirmed = confirmed
        self._changed = threading.Condition()
        self._lanes = Lanes()
        self._outbox: deque[Message] = deque()
        self._returned: set[tuple[str, Route]] = set()
        self._steps: deque[tuple[str, Step]] = deque()
        self._doing = "connecting"
        self._tag = 0
        self._progress = 0
        self._ready = self._ended = False
        self._blocked = ""
        self._failure = ""
        self._connection: Any = None
        self._channel: Any = None
        self._thread = threading.Thread(target=self._run, name="tailrace-rabbitmq", daemon=True)

    @property
    def failed(self) -> bool:
        """Whether nothing can be published on it any more."""
        with self._changed:
            return bool(self._failure)

    # The caller's thread.

    def open(self, steps: list[tuple[str, Step]]) -> None:
        """Connect, take the steps in turn, each with what it is about, and be ready. Raises ServiceError."""
        self._steps.extend([("publisher confirms", _confirms(self._on_answer)), *steps])
        self._thread.start()
        with self._changed:
            self._wait(lambda: self._ready, "no answer")

    def publish(self, message: Message) -> None:
        with self._changed:
            self._wait(self._has_room, "no confirmation")
            if self._lanes.add(message):
                self._send(message)

    def settle(self) -> None:
        with self._changed:
            self._wait(lambda: len(self._lanes) == 0, "no confirmation")

    def close(self) -> None:
        """Leave in order, so that nothing arrives behind what the next connection sends; not for long."""
        if not self._thread.is_alive():
            return
        with self._changed:
            if not self._failure:
                self._failure = "closed"
            # A refusal is no reason to publish again what RabbitMQ is about to confirm.
            self._changed.wait_for(lambda: self._ended or self._lanes.under_way == 0, _CLOSING_SECONDS)
            connection = self._connection
        if connection is not None:
            connection.ioloop.add_callback_threadsafe(self._leave)
            self._thread.join(_CLOSING_SECONDS)
            connection.ioloop.add_callback_threadsafe(self._break_off)
        self._thread.join(_CLOSING_SECONDS)

    def _has_room(self) -> bool:
        return len(self._lanes) == 0 or (
            len(self._lanes) < self._settings.in_flight and self._lanes.size < _MOST_BYTES
        )  # fmt: skip

    def _wait(self, is_so: Callable[[], bool], lacking: str) -> None:
        """Until it is so; as long as RabbitMQ goes on confirming, however long that takes."""
        while not self._failure and not is_so():
            last_progress = self._progress
            went_on = self._changed.wait_for(lambda: bool(self._failure) or is_so(), self._settings.timeout_seconds)
            if not went_on and self._progress == last_progress:
                blocked = f"; RabbitMQ takes nothing: {self._blocked}" if self._blocked else ""
                self._failure = f"{lacking} within {self._settings.timeout_seconds:g} s{blocked}"
                self._ended = True
        if self._failure:
            location, words = self._settings.location, self._failure
            raise unreachable(location, words, "RabbitMQ") or ServiceError(f"{location}: {words}")

    def _send(self, message: Message) -> None:
        """Have the connection's thread publish it."""
        self._outbox.append(message)
        if len(self._outbox) == 1:
            self._connection.ioloop.add_callback_threadsafe(self._pump)

    # The connection's thread.

    def _run(self) -> None:
        try:
            connection = pika.SelectConnection(
                self._parameters,
                on_open_callback=self._on_open,
                on_open_error_callback=lambda _, error: self._end(_words(error)),
                on_close_callback=lambda _, error: self._end(self._explained(error)),
            )
            with self._changed:
                self._connection = connection
            connection.add_on_connection_blocked_callback(self._on_blocked)
            connection.add_on_connection_unblocked_callback(self._on_unblocked)
            try:
                connection.ioloop.start()
            finally:
                connection.ioloop.close()
        except Exception as error:  # whatever it is, the caller must not wait for a thread that is gone
            self._fail(_words(error), ended=True)

    def _on_open(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._on_channel_closed)
        channel.add_on_return_callback(self._on_return)
        self._step()

    def _step(self, *_: object) -> None:
        with self._changed:
            self._progress += 1
            self._changed.notify_all()
        if self._steps:
            self._doing, step = self._steps.popleft()
            step(self._channel, self._step)
            return
        with self._changed:
            self._doing = ""
            self._ready = True
            self._changed.notify_all()

    def _pump(self) -> None:
        with self._changed:
            while self._outbox and not self._failure:
                message = self._outbox.popleft()
                exchange, key = message.route
                self._tag += 1
                self._lanes.sent(self._tag, message)
                self._channel.basic_publish(exchange, key, message.body, _properties(message), mandatory=True)

    def _on_answer(self, frame: Any) -> None:
        answer = frame.method
        with self._changed:
            if isinstance(answer, pika.spec.Basic.Nack):
                self._lanes.refuse(answer.delivery_tag, multiple=answer.multiple)
                self._failure = self._failure or (
                    "RabbitMQ refuses a message (nack): a queue is full, or cannot keep it now; the batch is held"
                )
            else:
                done, following = self._lanes.confirm(answer.delivery_tag, multiple=answer.multiple)
                self._confirmed.update({(message.identity, message.route) for message in done} - self._returned)
                self._outbox.extend(following)
            self._progress += 1
            # Who waits for room wakes for many messages at once: to wake for each takes longer than to send it.
            if self._failure or len(self._lanes) <= self._settings.in_flight // 2:
                self._changed.notify_all()
        self._pump()

    def _on_return(self, _channel: Any, method: Any, properties: Any, _body: bytes) -> None:
        """Of a message that no queue takes: that it was dropped is then confirmed."""
        headers = properties.headers
        self._returned.add((properties.message_id, (method.exchange, method.routing_key)))
        record = f"{headers['topic']}, partition {headers['partition']}, offset {headers['offset']}"
        target = f"queue {method.routing_key}" if not method.exchange else f"exchange {method.exchange}"
        todo = "bind queues to it" if method.exchange else "make it"
        self._fail(f"a message is routed to no queue by {target} ({record}): {todo}, or set declare = true")

    def _on_channel_closed(self, _channel: Any, error: Exception) -> None:
        self._fail(self._explained(error), ended=True)

    def _on_blocked(self, _connection: Any, frame: Any) -> None:
        with self._changed:
            self._blocked = str(frame.method.reason)

    def _on_unblocked(self, *_: object) -> None:
        with self._changed:
            self._blocked = ""

    def _leave(self) -> None:
        with suppress(pika.exceptions.AMQPError):  # it is closing already
            self._connection.close()

    def _break_off(self) -> None:
        """RabbitMQ does not answer a goodbye: end the connection as pika does when a heartbeat is missing."""
        if not self._connection.is_closed:
            getattr(self._connection, "_terminate_stream")(pika.exceptions.AMQPConnectionError("no answer"))  # noqa: B009

    def _end(self, words: str) -> None:
        self._fail(words, ended=True)
        self._connection.ioloop.stop()

    def _fail(self, words: str, *, ended: bool = False) -> None:
        with self._changed:
            self._failure = self._failure or words
            self._ended = self._ended or ended
            self._changed.notify_all()

    def _explained(self, error: Exception) -> str:
        """What to do about an error of RabbitMQ's, by its code; its own words behind that."""
        reason = _words(error)
        code = error.args[0] if isinstance(error, ChannelClosed | ConnectionClosed) else 0
        entity, vhost = self._doing, self._settings.vhost
        if code == 404:
            missing = entity or "what it publishes to"
            return f"{missing} is missing in vhost {vhost}: make it, or set declare = true: {reason}"
        if code == 503 and EXCHANGE_TYPE in reason:
            plugin = "rabbitmq_consistent_hash_exchange"
            return f"{entity}: RabbitMQ lacks a plugin: rabbitmq-plugins enable {plugin}: {reason}"
        if code == 406 and entity:
            return f"{entity} exists, made otherwise; with declare = false it is used as it is: {reason}"
        if code == 406 and "max size" in reason:
            return f"set largest_message to RabbitMQ's max_message_size: {reason}"
        return f"{entity}: {reason}" if entity else reason


def _declare(settings: RabbitmqSinkSettings) -> Iterator[tuple[str, Step]]:
    """Make the exchange and its queues, or see that they are as we would make them."""
    exchange = settings.exchange
    yield f"exchange {exchange}", _exchange(exchange, exchange_type=EXCHANGE_TYPE, durable=True)
    # A queue that is limited by a policy is to refuse what is too much, not to drop what it has.
    arguments = {"x-queue-type": settings.queue_type, "x-overflow": "reject-publish"}
    # The exchange counts its bindings in the order in which they were made, and in that of their names once RabbitMQ
    # was started again: were these two different, keys would then change their queues.
    for queue in sorted(settings.queue_names, key=str.encode):
        yield f"queue {queue}", _queue(queue, durable=True, arguments=arguments)
        yield f"binding of queue {queue}", _binding(exchange, queue)


def _look(settings: RabbitmqSinkSettings) -> Iterator[tuple[str, Step]]:
    """See that the exchange is there, and its queues where changes are spread over them."""
    yield f"exchange {settings.exchange}", _exchange(settings.exchange, passive=True)
    for queue in () if settings.routing_key is not None else settings.queue_names:
        yield f"queue {queue}", _queue(queue, passive=True)


def _confirms(on_answer: Callable[[Any], None]) -> Step:
    return lambda channel, done: channel.confirm_delivery(on_answer, callback=done)


def _exchange(name: str, **how: Any) -> Step:
    return lambda channel, done: channel.exchange_declare(name, callback=done, **how)


def _queue(name: str, **how: Any) -> Step:
    return lambda channel, done: channel.queue_declare(name, callback=done, **how)


def _binding(exchange: str, queue: str) -> Step:
    """By the weight 1, as all: each gets the same share of the keys."""
    return lambda channel, done: channel.queue_bind(queue, exchange, routing_key="1", callback=done)


def _properties(message: Message) -> Any:
    return pika.BasicProperties(
        content_type="application/json",
        delivery_mode=pika.DeliveryMode.Persistent.value,
        headers=dict(message.headers),
        message_id=message.identity,
        type=message.type,
        timestamp=message.timestamp,
        app_id="tailrace",
    )


def _parameters(name: str, settings: RabbitmqSinkSettings) -> Any:
    password = "guest" if settings.password is None else settings.password.get_secret_value()
    tls = pika.SSLOptions(tls_context(f"sink.{name}", settings.tls_ca_file), settings.host) if settings.tls else None
    return pika.ConnectionParameters(
        host=settings.host,
        port=settings.port,
        virtual_host=settings.vhost,
        credentials=pika.PlainCredentials(settings.username, password),
        heartbeat=settings.heartbeat_seconds,
        ssl_options=tls,
        socket_timeout=settings.timeout_seconds,
        stack_timeout=None,
        client_properties={"connection_name": f"tailrace sink {name}"},
    )


def _words(error: BaseException) -> str:
    """What the innermost of pika's errors says."""
    inner = [*getattr(error, "exceptions", ()), getattr(error, "exception", None), *error.args]
    for cause in inner:
        if isinstance(cause, BaseException):
            return _words(cause)
    if isinstance(error, ChannelClosed | ConnectionClosed):
        return f"{error.reply_code} {error.reply_text}"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
