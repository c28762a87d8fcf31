"""Subscriptions in the meta database, as operators read and change them; each change is audited with it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from tailrace_schemas.errors import SettingsError
from tailrace_schemas.topics import KafkaPartition
from tailrace_server.meta.database import MetaDatabase, first, now, put
from tailrace_server.meta.tables import audit, delivery, progress, snapshot_progress, subscribe, worker
from tailrace_server.model.delivery import Delivery, PartitionProgress
from tailrace_server.model.subscription import (
    EARLIEST,
    ConflictError,
    RefusedRequestError,
    Request,
    Shape,
    Sink,
    Start,
    State,
    Subscription,
    TableName,
    Topics,
    UnknownSubscriptionError,
)
from tailrace_server.model.transitions import Transition


class Subscriptions:
    """Reads and changes. `who` of a change is the person or key that asked for it."""

    def __init__(self, database: MetaDatabase) -> None:
        self._database = database

    def subscribe(self, request: Request, user: str, state: State = State.ACTIVE) -> tuple[Subscription, bool]:
        """The subscription of a request, and whether it is new: then it has this state.

        Raises ConflictError where the name is another's.
        """
        try:
            return self._subscribe(request, user, state)
        except _TakenError:  # somebody asked for it at the same moment
            return self._subscribe(request, user, state)

    def _subscribe(self, request: Request, user: str, state: State) -> tuple[Subscription, bool]:
        with self._database.transaction() as connection:
            existing = first(connection, _live(request.table, request.name).with_for_update())
            if existing is not None:
                return _same(request, subscription_of(existing)), False
            values = {**_new(request), "state": str(state), "created": now()}
            try:
                inserted = connection.execute(sa.insert(subscribe).values(values))
            except IntegrityError:
                raise _TakenError from None
            [identity] = inserted.inserted_primary_key or (None,)
            row = first(connection, sa.select(subscribe).where(subscribe.c.id == identity))
            subscription = subscription_of(row)
            _keep(connection, user, "subscribe", subscription.reference, None, audited(subscription))
            return subscription, True

    def all(self, cluster: str, *, cancelled: bool = False) -> list[Subscription]:
        """Those of a cluster, by table and name."""
        statement = sa.select(subscribe).where(subscribe.c.cluster == cluster)
        if not cancelled:
            statement = statement.where(subscribe.c.ended == 0)
        order = subscribe.c.keyspace_name, subscribe.c.table_name, subscribe.c.name, subscribe.c.id
        with self._database.transaction() as connection:
            return [_listed(row) for row in connection.execute(statement.order_by(*order)).mappings()]

    def get(self, identity: int) -> Subscription:
        """Raises UnknownSubscriptionError."""
        with self._database.transaction() as connection:
            return subscription_of(_row(connection, identity))

    def find(self, table: TableName, name: str) -> Subscription | None:
        """The one of this name that is not cancelled; None where there is none."""
        with self._database.transaction() as connection:
            row = first(connection, _live(table, name))
        return None if row is None else subscription_of(row)

    def change(
        self,
        identity: int,
        operation: str,
        user: str,
        transition: Transition,
        *,
        offsets: Mapping[KafkaPartition, int] | None = None,
        snapshot: bool = False,
    ) -> Subscription:
        """Make of a subscription what `transition` says.

        `offsets` take the place of its progress; with `snapshot` that of its snapshots is forgotten.
        Raises UnknownSubscriptionError, and what `transition` raises.
        """
        with self._database.transaction() as connection:
            stored = subscription_of(_row(connection, identity, lock=True))
            changed = transition(stored)
            if changed != stored and changed.owner is None is stored.owner:  # from now on it waits for a worker
                changed = replace(changed, lease_until=connection.scalar(sa.select(now())))
            connection.execute(sa.update(subscribe).where(subscribe.c.id == identity).values(changeable(changed)))
            if offsets is not None or changed.state is State.CANCELLED:
                _replace_progress(connection, identity, offsets or {})
            if snapshot or changed.state is State.CANCELLED:
                forgotten = sa.delete(snapshot_progress).where(snapshot_progress.c.subscription == identity)
                connection.execute(forgotten)
            if offsets is not None:  # what the sink has is no more all that the topics had
                reached = sa.update(delivery).where(delivery.c.subscription == identity)
                connection.execute(reached.values(complete_to=None))
            if changed != stored or offsets is not None:
                _keep(connection, user, operation, changed.reference, audited(stored), audited(changed))
            return changed

    def progress(self, identities: list[int]) -> dict[int, dict[KafkaPartition, PartitionProgress]]:
        """How far these are, by Kafka partition."""
        collected: dict[int, dict[KafkaPartition, PartitionProgress]] = {identity: {} for identity in identities}
        statement = sa.select(progress).where(progress.c.subscription.in_(identities))
        with self._database.transaction() as connection:
            for row in connection.execute(statement).mappings():
                partition = row["topic"], row["kafka_partition"]
                partitions = collected[row["subscription"]]
                partitions[partition] = PartitionProgress(row["next_offset"], row["end_offset"])
        return collected

    def snapshots(self, identities: list[int]) -> dict[int, str]:
        """How far the snapshots of these are, as workers keep it; nothing of those that have none."""
        columns = snapshot_progress.c.subscription, snapshot_progress.c.ranges
        statement = sa.select(*columns).where(snapshot_progress.c.subscription.in_(identities))
        with self._database.transaction() as connection:
            return {row.subscription: row.ranges for row in connection.execute(statement)}

    def deliveries(self, identities: list[int]) -> tuple[int, dict[int, Delivery]]:
        """What the sinks of these have, and the time of the database, in milliseconds since 1970."""
        names = [field.name for field in fields(Delivery)]
        statement = sa.select(delivery).where(delivery.c.subscription.in_(identities))
        with self._database.transaction() as connection:
            rows = connection.execute(statement).mappings().all()
            time = int(connection.scalar(sa.select(now())) or 0)
        kept = {row["subscription"]: Delivery(**{name: row[name] for name in names}) for row in rows}
        return time, {identity: kept.get(identity, Delivery()) for identity in identities}

    def workers(self, cluster: str) -> tuple[int, int]:
        """How many workers live, and how many subscriptions they may take up together."""
        columns = sa.func.count(), sa.func.coalesce(sa.func.sum(worker.c.room), 0)
        statement = sa.select(*columns).where(worker.c.cluster == cluster, worker.c.seen_until >= now())
        with self._database.transaction() as connection:
            [(living, room)] = connection.execute(statement)
        return int(living), int(room)

    def count_letters(self, identity: int, before: int, count: int) -> None:
        """A sink was seen with so many dead letters, where `before` were counted; its worker may have counted on."""
        difference = count - before
        with self._database.transaction() as connection:
            kept = first(connection, sa.select(delivery).where(delivery.c.subscription == identity).with_for_update())
            letters = max(0, (0 if kept is None else kept["letters"]) + difference)
            since = None if kept is None else kept["letters_since"]
            values = {"letters": letters, "letters_since": (since or now()) if letters else None}
            if letters or kept is not None:
                put(connection, delivery, {"subscription": identity}, values)

    def audit(self, subject: str | None, limit: int) -> list[dict[str, Any]]:
        """The last changes, the newest first: of one subscription by its reference, else of all."""
        statement = sa.select(audit).order_by(audit.c.id.desc()).limit(limit)
        if subject is not None:
            statement = statement.where(audit.c.subject == subject)
        with self._database.transaction() as connection:
            rows = connection.execute(statement).mappings().all()
        return [
            {
                "changed": row["changed"],
                "who": row["who"],
                "operation": row["operation"],
                "subject": row["subject"],
                "before": None if row["before_json"] is None else json.loads(row["before_json"]),
                "after": None if row["after_json"] is None else json.loads(row["after_json"]),
            }
            for row in rows
        ]


class _TakenError(Exception):
    """Another one has that name since this transaction began."""


def _same(request: Request, existing: Subscription) -> Subscription:
    """The existing one. Raises ConflictError where it is another than the request's."""
    differences = [
        name
        for name, old, new in (
            ("target", existing.sink.target, request.sink.target),
            ("options", as_json(existing.sink.options), as_json(request.sink.options)),
            ("filter, columns or stream", shape_json(existing.shape), shape_json(request.shape)),
            ("start", existing.start, request.start),
        )
        if old != new
    ]
    if differences:
        raise ConflictError(
            f"{existing.reference} exists with another {' and '.join(differences)}: alter or cancel that one, or "
            "give this one another name"
        )
    return existing


def record(database: MetaDatabase, user: str, operation: str, subject: str, after: Mapping[str, object] | None) -> None:
    """Audit a change of what is no subscription, such as an API key."""
    with database.transaction() as connection:
        _keep(connection, user, operation, subject, None, after)


def _new(request: Request) -> dict[str, Any]:
    blank = Subscription(
        id=0, table=request.table, name=request.name, sink=request.sink, shape=request.shape, start=request.start
    )
    return {
        **changeable(blank),
        "cluster": request.table.cluster,
        "keyspace_name": request.table.keyspace,
        "table_name": request.table.table,
        "name": request.name,
        "sink_type": request.sink.type,
    }


def _live(table: TableName, name: str) -> sa.Select[Any]:
    return sa.select(subscribe).where(
        subscribe.c.cluster == table.cluster,
        subscribe.c.keyspace_name == table.keyspace,
        subscribe.c.table_name == table.table,
        subscribe.c.name == name,
        subscribe.c.ended == 0,
    )


def _row(connection: sa.Connection, identity: int, *, lock: bool = False) -> sa.RowMapping:
    statement = sa.select(subscribe).where(subscribe.c.id == identity)
    row: sa.RowMapping | None = first(connection, statement.with_for_update() if lock else statement)
    if row is None:
        raise UnknownSubscriptionError(f"there is no subscription {identity}; `tailrace subscriptions` lists them")
    return row


def _replace_progress(connection: sa.Connection, identity: int, offsets: Mapping[KafkaPartition, int]) -> None:
    connection.execute(sa.delete(progress).where(progress.c.subscription == identity))
    for (topic, partition), offset in offsets.items():
        values = {"subscription": identity, "topic": topic, "kafka_partition": partition, "next_offset": offset}
        connection.execute(sa.insert(progress).values({**values, "changed": now()}))


def _keep(
    connection: sa.Connection,
    user: str,
    operation: str,
    subject: str,
    before: Mapping[str, object] | None,
    after: Mapping[str, object] | None,
) -> None:
    values = {
        "changed": now(),
        "who": user[:200],
        "operation": operation,
        "subject": subject[:400],
        "before_json": None if before is None else as_json(dict(before)),
        "after_json": None if after is None else as_json(dict(after)),
    }
    connection.execute(sa.insert(audit).values(values))


def subscription_of(row: Mapping[Any, Any]) -> Subscription:
    """The subscription that a row of `subscribe` is. Raises SettingsError for one that another version wrote."""
    try:
        return _subscription(row)
    except (TypeError, ValueError, RefusedRequestError) as error:
        raise SettingsError(
            f"subscription {row['keyspace_name']}.{row['table_name']}/{row['name']} was written by another version of "
            f"Tailrace ({error}): install that version here too"
        ) from error


def readable(rows: Iterable[Mapping[Any, Any]]) -> Iterator[Subscription]:
    """The subscriptions of this version; others are left to the servers of theirs."""
    for row in rows:
        with suppress(SettingsError):
            yield subscription_of(row)


def _listed(row: Mapping[Any, Any]) -> Subscription:
    """As `subscription_of`; of another version's what every version has, with the reason."""
    try:
        return subscription_of(row)
    except SettingsError as error:
        plain = {"options": "{}", "shape": "{}", "start": EARLIEST, "topics": None, "left_out": None}
        state = row["state"] if row["state"] in set(State) else State.FAILING
        return _subscription({**row, **plain, "state": state, "reason": str(error), "action": ""})


def _subscription(row: Mapping[Any, Any]) -> Subscription:
    return Subscription(
        id=row["id"],
        table=TableName(row["cluster"], row["keyspace_name"], row["table_name"]),
        name=row["name"],
        sink=Sink(type=row["sink_type"], target=row["target"], options=json.loads(row["options"])),
        shape=Shape(**json.loads(row["shape"])),
        start=Start.parse(row["start"]),
        state=State(row["state"]),
        reason=row["reason"],
        action=row["action"],
        attempts=row["attempts"],
        revision=row["revision"],
        token=row["token"],
        owner=row["owner"],
        lease_until=row["lease_until"],
        created=row["created"],
        left_out={} if row["left_out"] is None else json.loads(row["left_out"]),
        topics=Topics() if row["topics"] is None else Topics(**json.loads(row["topics"])),
    )


def changeable(subscription: Subscription) -> dict[str, Any]:
    """The columns that an operation may change."""
    return {
        "ended": subscription.id if subscription.state is State.CANCELLED else 0,
        "target": subscription.sink.target,
        "options": as_json(subscription.sink.options),
        "shape": shape_json(subscription.shape),
        "start": str(subscription.start),
        "state": str(subscription.state),
        "reason": subscription.reason,
        "action": subscription.action,
        "attempts": subscription.attempts,
        "revision": subscription.revision,
        "token": subscription.token,
        "owner": subscription.owner,
        "lease_until": subscription.lease_until,
        "retry_at": None,
        "topics": topics_json(subscription.topics),
    }


def shape_json(shape: Shape) -> str:
    """A shape as JSON, which `subscription_of` reads."""
    return as_json({"where": shape.where, "columns": dict(shape.columns), "stream": dict(shape.stream)})


def topics_json(topics: Topics) -> str:
    """Topics as JSON, which `subscription_of` reads."""
    return as_json({"ids": dict(topics.ids), "readings": dict(topics.readings), "begun": topics.begun})


def as_json(value: object) -> str:
    """JSON in which equal values are equal texts."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def audited(subscription: Subscription) -> dict[str, Any]:
    """What the audit keeps of a subscription: nothing that workers write."""
    return {
        "table": str(subscription.table),
        "name": subscription.name,
        "target": subscription.sink.target,
        "options": dict(subscription.sink.options),
        "where": subscription.shape.where,
        "columns": dict(subscription.shape.columns),
        "stream": dict(subscription.shape.stream),
        "start": str(subscription.start),
        "state": str(subscription.state),
    }
