"""The spans of a stream's batches, which go on with the traces of the agents' transactions."""

from __future__ import annotations

from tailrace_common.closing import Closing
from tailrace_common.sections.traces import TracesSettings
from tailrace_common.tracing.opening import open_tracer
from tailrace_common.tracing.spans import Attributes
from tailrace_spark.job.progress import Progress


class BatchTraces(Closing):
    """Sends the spans of one stream, where the settings ask for them. `location` names the sink without secrets."""

    def __init__(self, settings: TracesSettings, name: str, location: str) -> None:
        about = {"tailrace.stream": name, "tailrace.sink": location}
        self._tracer = open_tracer(settings.endpoint, "tailrace-stream", about)

    @property
    def on(self) -> bool:
        """Whether spans are sent, for which records are read with their headers."""
        return self._tracer is not None

    def wrote(self, progress: Progress, began: int) -> None:
        """A batch that was taken up at `began` (nanoseconds since 1970) is in the sink."""
        if self._tracer is None or not progress.traces:
            return
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
