"""`tailrace check` of what agents have recorded: a position for each host that has published, and no open losses."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from tailrace.cli.support.records import chosen_losses, lost_records, lost_words, stored_losses
from tailrace_common.cli.checks import Check, judge
from tailrace_common.settings import Settings
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.topics import Internal, internal_topic

_MOST: Final = 3


def check_records(settings: Settings, topics: Collection[str]) -> Iterator[Check]:
    """The offsets records and losses of a prefix with these topics; nothing where no agent has published yet."""
    if internal_topic(settings.topics.prefix, Internal.PROGRESS) not in topics:
        return
    try:
        lost = [lost_words(settings, progress) for progress in lost_records(settings)]
        open_ = chosen_losses(stored_losses(settings), None)
    except ServiceError as error:
        yield Check("positions", False, str(error), "the agent's user needs the right to read its topics for this")
        return
    yield judge("positions", not lost, "; ".join(lost) or "none was deleted", "tailrace offsets restore")
    reasons = "; ".join(f"host {stored.loss.host}: {stored.loss.words}" for stored in open_[:_MOST])
    left_out = f"; and {len(open_) - _MOST} more" if len(open_) > _MOST else ""
    advice = "see `tailrace losses list`, and once they are dealt with, `tailrace losses acknowledge`"
    yield judge("losses", not open_, f"{reasons}{left_out}" or "none that nobody has acknowledged", advice)
