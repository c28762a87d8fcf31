"""Images that tasks make: each Kafka partition's in its own transactions, after a plan of the driver.

A task's transactions hold their partition's row of `tailrace_partitions`. So of two attempts the second waits, and
finds the images of the first. After a newer plan, or a batch of the driver's, it ends (state_store.fences).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from tailrace_common.sections.sink import ImagesSection
from tailrace_common.sections.template import fit
from tailrace_schemas.tokens import partition as partition_of
from tailrace_schemas.tokens import token as token_of
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import MicroBatch, Piece, partition_counts
from tailrace_spark.merge.condition import RowFilters
from tailrace_spark.sinks.images.state import LONGEST_STREAM
from tailrace_spark.sinks.images.store import ImageShare, ImageStore
from tailrace_spark.sinks.protocol import Needed
from tailrace_spark.sinks.sink_type import Surroundings
from tailrace_spark.sinks.state_store.fences import Fence, begin_partition
from tailrace_spark.sinks.worker_cache import WorkerCache


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """What an ImageStore is made of; equal ones share that of a worker process. It may have a secret.

    `filters` are those of ImageStore.filter_rows.
    """

    url: str = field(repr=False)
    stream: str
    ring_delay: float
    merge_horizon: int | None
    filters: RowFilters = ()

    def open(self) -> ImageStore:
        """A store of its own connections."""
        store = ImageStore(self.url, self.stream, ring_delay=self.ring_delay, merge_horizon=self.merge_horizon)
        store.filter_rows(self.filters)
        return store

    def plan(
        self, store: ImageStore, batch: MicroBatch, needed: Needed, clock: Callable[[], float] = time.time
    ) -> ShareImages:
        """Make ready what the definitions need in the driver's store, and give the task; earlier ones are fenced.

        `clock` tells the seconds since the epoch.
        """
        fence = store.prepare(needed())
        return ShareImages(replace(self, filters=store.filters), batch, fence, clock())


@dataclass(frozen=True, slots=True)
class ShareImages:
    """Gives the changes of a share their images, on an executor. It is pickled, and shown to nobody.

    `now` is the plan's time, in seconds since the epoch: rows are looked at as they read then.
    """

    settings: ImageSettings
    batch: MicroBatch
    fence: Fence
    now: float

    def imaged(self, share: KafkaPartition, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """As ImageStore's. Raises HereOnlyError for a definition that the plan has not made ready.

        Raises FencedError where the stream has a newer plan.
        """
        count = partition_counts(self.batch.ends)[share[0]]
        image_share = ImageShare(
            lambda connection: begin_partition(connection, self.batch, share),
            self.fence.require,
            lambda key: partition_of(token_of(key), count) == share[1],
            self.now,
        )
        with _STORES.borrowed(self.settings) as store:
            yield from store.imaged_share(pieces, image_share)


def images_for(
    name: str, settings: ImagesSection, around: Surroundings
) -> tuple[ImageStore | None, ImageSettings | None]:
    """The images that [sink.NAME] asks for, which may be none; no settings where tasks cannot make them.

    Raises SettingsError as ImageStore does.
    """
    if settings.images is None:
        return None, None
    made_of = ImageSettings(
        settings.images.get_secret_value(),
        fit(f"{around.prefix}.sink.{name}", LONGEST_STREAM),
        around.ring_delay,
        settings.images_horizon_seconds or None,
    )
    store = made_of.open()
    return store, made_of if store.by_tasks else None


_STORES: Final = WorkerCache(ImageSettings.open)
"""The stores of a worker process, one for each stream: its tasks run one after another."""
