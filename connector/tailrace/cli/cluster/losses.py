"""`tailrace losses`: what was lost before it was published, and acknowledging that somebody has dealt with it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated

import typer

from tailrace.cli.support.records import (
    StoredLoss,
    chosen_losses,
    known_topics,
    progress_topic,
    stored_losses,
)
from tailrace.publish.kafka import KafkaLog
from tailrace.publish.reports import ReportedLoss, acknowledged, decode_loss
from tailrace_common.cli.console import print_rows, say
from tailrace_common.cli.options import SettingsFile, Yes, confirm, settings_of
from tailrace_common.settings import Settings
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.topics import host_partition

app = typer.Typer(
    no_args_is_help=True,
    help="List and acknowledge losses: changes that were lost for ever.\n\nExample: tailrace losses list",
)

Host = Annotated[str | None, typer.Option("--host", metavar="ID", help="Only those of this host.", show_default=False)]


@app.command("list")
def list_(
    config: SettingsFile = None,
    host: Host = None,
    all_: Annotated[bool, typer.Option("--all", help="Include acknowledged losses.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON lines on a terminal, too.")] = False,
) -> None:
    """List the losses that nobody has acknowledged: time, host, segments, positions, tables, reason.

    Kind: `lost`, segments with changes; `unknown`, segments that may have had changes; `retracted`, published changes
    that the node lost in a crash. The gap is after `from` and before `to`. Tables: all that the
    agent published then; each may be affected.

    Example: tailrace losses list -c tailrace.toml
    """
    losses = chosen_losses(stored_losses(settings_of(config)), host, all_=all_)
    print_rows((loss_row(stored.loss) for stored in losses), always_json=json, empty="no losses to acknowledge")


@app.command()
def acknowledge(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of losses, as `losses list` prints them.")
    ] = None,
    config: SettingsFile = None,
    host: Host = None,
    all_: Annotated[bool, typer.Option("--all", help="Every loss that `losses list` prints.")] = False,
    yes: Yes = False,
) -> None:
    """Acknowledge losses that are dealt with: /status and metrics of the agents stop showing them.

    Running agents notice it within seconds. The records stay, and `losses list --all` shows them.

    Example: tailrace losses acknowledge loss/1/1795246977430
    """
    settings = settings_of(config)
    if bool(ids) == all_:
        raise SettingsError("losses acknowledge: give ids, or --all")
    chosen = losses_named(chosen_losses(stored_losses(settings), host), ids)
    if not chosen:
        say("no losses to acknowledge")
        return
    for stored in chosen:
        say(f"host {stored.loss.host}: {stored.loss.words}")
    confirm("Acknowledge?", yes)
    _write(settings, {stored.key: acknowledged(stored.value, time.time_ns() // 1_000_000) for stored in chosen})
    say(f"{len(chosen)} acknowledged")


def losses_named(losses: Iterable[StoredLoss], ids: Iterable[str] | None) -> tuple[StoredLoss, ...]:
    """Those of these ids, or all. Raises SettingsError for an id that none has, and for one that several hosts have."""
    every = tuple(losses)
    if not ids:
        return every
    chosen = []
    for id in ids:
        matching = [stored for stored in every if stored.loss.id == id]
        if not matching:
            ids_text = ", ".join(stored.loss.id for stored in every) or "none"
            raise SettingsError(f"no loss {id} waits to be acknowledged; the ids are: {ids_text}")
        if len(matching) > 1:
            hosts = ", ".join(stored.loss.host for stored in matching)
            raise SettingsError(f"loss {id} is of several hosts: give --host with one of {hosts}")
        chosen += matching
    return tuple(chosen)


def loss_row(loss: ReportedLoss) -> Mapping[str, object]:
    """A row of `losses list`."""
    return {
        "time": _time(loss.seen),
        "host": loss.host,
        "id": loss.id,
        "kind": loss.kind,
        "segments": "-".join(str(id) for id in dict.fromkeys(loss.segments)),
        "from": str(loss.first),
        "to": str(loss.until),
        "tables": ", ".join(loss.tables) or None,
        "reason": loss.words,
        "acknowledged": None if loss.acknowledged is None else _time(loss.acknowledged),
    }


def _write(settings: Settings, records: Mapping[bytes, bytes]) -> None:
    topic = progress_topic(settings)
    partitions = known_topics(settings)[topic]
    for key, value in records.items():
        loss = decode_loss(key, value)
        if loss is not None:
            log = KafkaLog(settings.kafka.reveal(), topic, partition=host_partition(loss.host, partitions))
            log.append(key, value)


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")
