"""The spans of a stream's batches, which go on with the traces of the agents' transactions."""

from __future__ import annotations

import time

from tailrace_common.closing import Closing
from tailrace_common.sections.stream import TracesSettings
from tailrace_common.tracing.opening import open_tracer
from tailrace_common.tracing.spans import Attributes
from tailrace_spark.job.progress import Progress


class BatchTraces(Closing):
    """Sends the spans of one stream, where the settings ask for them. `location` names the sink without secrets."""

    def __init__(self, settings: TracesSettings, name: str, location: str) -> None:
        about = {"tailrace.stream": name, "tailrace.sink": location}
        self._tracer = open_tracer(settings.endpoint, "tailrace-stream", about)

    @property
    def options(self) -> dict[str, str]:
        """Options of Spark's Kafka source: where spans are sent, records are read with their headers."""
        return {} if self._tracer is None else {"includeHeaders": "true"}

    def wrote(self, progress: Progress) -> None:
        """A batch is in the sink, just now."""
        if self._tracer is None or not progress.traces:
            return
        began = time.time_ns() - round(progress.seconds * 1e9)
        about: Attributes = {
            "messaging.system": "kafka",
            "messaging.operation.type": "process",
            "messaging.batch.message_count": progress.records,
            "tailrace.batch": progress.batch,
            "tailrace.execution": progress.execution,
            "tailrace.tables": sorted(progress.tables),
            "tailrace.rows": progress.summary.rows,
            "tailrace.dead_letters": progress.summary.dead_letters,
            "tailrace.blocked_seconds": progress.blocked_seconds,
        }
        self._tracer.batch("tailrace.batch", sorted(progress.traces), began, about)

    def close(self) -> None:
        """Send what has ended, for a few seconds at most."""
        if self._tracer is not None:
            self._tracer.close()
