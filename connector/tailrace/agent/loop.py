"""The agent's run: sessions with Kafka, one after another, until it is stopped."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import Final

from tailrace.agent.limits import Limits
from tailrace.agent.notes import Losses
from tailrace.agent.ports import Parts
from tailrace.agent.session import Session
from tailrace.agent.stalls import Outage, Slowness, Standstill
from tailrace.errors import RenewalError
from tailrace.state import FIRST_EPOCH
from tailrace_common.backoff import Backoff
from tailrace_common.kafka import StoppedError
from tailrace_schemas.change import Source
from tailrace_schemas.errors import RefusedError, ServiceError
from tailrace_schemas.position import NO_POSITION

_LOG: Final = logging.getLogger("tailrace.agent")


class Agent:
    """Publishes one node's changes until it is stopped."""

    def __init__(self, parts: Parts, host: str, datacenter: str, limits: Limits | None = None) -> None:
        self._parts = parts
        self._host = host
        self._datacenter = datacenter
        self._limits = limits or Limits()
        self._outage = Outage(parts.health, parts.clock)
        self._slowness = Slowness(parts.pace, parts.health, parts.clock)
        self._standstill = Standstill(parts.health, parts.clock, self._limits)
        self._losses = Losses(parts, host)

    def run(self) -> None:
        """Run until `stop`. After a failure of Kafka or of the directory it starts over from what Kafka has.

        Raises what no new start can cure: FencedError, LogEpochError, OffsetsError, SettingsError.
        """
        with closing(self._losses):
            self._run(Backoff(self._limits.waits))

    def _run(self, backoff: Backoff) -> None:
        while not self._parts.stop():
            try:
                self._session(backoff)
            except RenewalError as news:
                _LOG.info("%s", news)
                self._space(self._standstill.repeated())
            except StoppedError as error:
                _LOG.info("%s; the next start publishes them", error)
            except ServiceError as error:
                if isinstance(error, RefusedError):
                    self._parts.routing.refuse(error.topic, str(error))
                self._parts.health.ready(False)
                self._slowness.tell()
                self._outage.failed(error)
                self._outage.wait(backoff.next(), self._parts.pause)

    def _space(self, seconds: float) -> None:
        if seconds:
            self._parts.pause(seconds)

    def _session(self, backoff: Backoff) -> None:
        parts = self._parts
        with closing(parts.publisher()) as publisher:
            resume = publisher.start()
            self._losses.begin(publisher)
            epoch = FIRST_EPOCH if resume.position is None else resume.position.epoch
            parts.schema.begin(publisher.history(), resume, epoch)
            _LOG.info("publishing as host %s from position %s", self._host, resume.position or "the first segment")
            with closing(parts.capture(resume)) as capture:
                node = Source(self._host, self._datacenter, NO_POSITION, 0, 0)
                with closing(Session(parts, self._limits, publisher, capture, resume, node, self._losses)) as session:
                    self._run_session(session, backoff)

    def _run_session(self, session: Session, backoff: Backoff) -> None:
        parts = self._parts
        parts.health.recover("held")
        while not parts.stop():
            rested = session.step()
            self._space(self._standstill.judge(session.state, rested=rested))
            self._slowness.tell()
            self._losses.look()
            if session.proven:
                self._outage.over()
                parts.health.ready(True)
            if session.committed:
                backoff.reset()
        session.finish()
