"""A stream under load into a target, killed again and again, which has to come out equal to its source."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from tailrace.local import LocalKafka
from tests.integration import dying_stream
from tests.integration.dying_stream import Step
from tests.integration.feed import Feed
from tests.integration.items import ITEMS, LAST, Load, Source, are_last
from tests.integration.letters import letters_in
from tests.integration.streams import StreamProcess, kill_all
from tests.integration.targets import Target
from tests.support.waiting import until


class Killed:
    """One source, its topics, one target, and the processes between them."""

    def __init__(self, target: Target, kafka: LocalKafka, prefix: str, place: Path, execution: str) -> None:
        self._target, self._kafka, self._prefix, self._place = target, kafka, prefix, place
        self._settings = {"execution": json.dumps(execution)}
        self._source, self._feed = Source(3), Feed(kafka.bootstrap, prefix)
        self._feed.announce()
        self.killed = 0

    def close(self) -> None:
        self._feed.close()

    def load(self, seconds: float = 0.05) -> Load:
        """Ten changes every so many seconds, until the end of the `with`."""
        return Load(self._feed, self._source, seconds)

    def stream(self, **more: Any) -> StreamProcess:
        """One, not started."""
        section = self._target.section
        stream = StreamProcess(self._place, self._kafka, self._prefix, section, stream=self._settings, **more)
        stream.patience = 900.0  # of what is read at once behind all the kills, where much else runs too
        return stream

    def die_at(self, step: Step, nth: int) -> None:
        """A stream that ends itself at a step."""
        with self.stream(name="dying", program=(dying_stream.__file__, step, str(nth))) as dying:
            assert dying.ended(900) == -signal.SIGKILL, f"{step}\n{dying.words()}"
        self.killed += 1

    def kill(self, running: StreamProcess, **victims: bool) -> None:
        """Kill Python and Java, or one of them."""
        running.kill(**victims)
        self.killed += 1

    def kill_tasks(self, running: StreamProcess) -> None:
        """Kill the Pythons of its tasks alone, as soon as there are any."""

        def killed() -> bool:
            count = kill_all(running.workers)
            self.killed += count
            return count > 0

        running.until(killed)

    def settle(self, sent: int) -> int:
        """Write the last rows, and have a stream bring all to its end; how many changes there were.

        Nothing was set aside, and the stream ends well.
        """
        published = sent + LAST
        self._feed.publish(self._source.last())
        with self.stream() as running:
            running.until(lambda: self._target.arrived(published) and are_last(row[0] for row in self._rows()))
            # Not all stores show all at once what was written at once.
            until(lambda: self._rows() == sorted(self._source.rows(), key=repr), "an equal target")
            assert running.stop() == 0, running.words()
        self._target.require(published)
        assert letters_in(self._kafka, self._prefix) == []
        return published

    def _rows(self) -> list[Any]:
        return sorted(self._target.rows(ITEMS), key=repr)
