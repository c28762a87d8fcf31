"""A meta database out of the topic of subscriptions."""

from __future__ import annotations

from contextlib import closing

from tailrace_common.kafka import PartitionReader
from tailrace_common.settings import Settings
from tailrace_schemas.topics import Internal, internal_topic
from tailrace_server.meta.backup import restore_subscriptions
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.mirror.records import mirrored


def rebuild(database: MetaDatabase, settings: Settings) -> int:
    """Fill a meta database that has no subscriptions of this cluster; how many it has then.

    Raises ConflictError where it has, CorruptError for a record that cannot be read, ServiceError.
    """
    topic = internal_topic(settings.topics.prefix, Internal.SUBSCRIPTIONS)
    with closing(PartitionReader(settings.kafka.reveal(), topic, 0)) as reader:
        content = mirrored((record.key, record.value) for record in reader.read_to_end())
    rows = [row for listed in content.rows.values() for row in listed]
    return restore_subscriptions(database, settings.topics.prefix, rows, content.last)
