"""The dead letters of a subscription: `tailrace subscriptions NAME --letters`, and another try for them."""

from __future__ import annotations

from pathlib import Path

import typer

from tailrace_common.cli.options import settings_of
from tailrace_server.cli.opening import opened, who
from tailrace_server.operations.operations import DirectOperations


def letters(reference: str, config: Path | None, *, replay: bool) -> None:
    """List them, or write them again; what is left of them is what everybody is shown from then on.

    Exit code 1 if a replay leaves some.
    """
    from tailrace_server.worker.settings import stream_settings  # other commands need no sinks
    from tailrace_spark.cli.dead_letters import print_letters, replay_all

    settings = settings_of(config)
    with opened(settings) as (_, subscriptions):
        details = DirectOperations(subscriptions, settings, who()).details(reference)
        subscription = subscriptions.get(details["id"])
        chosen, name = stream_settings(settings, subscription, "unused"), subscription.sink_name
        if not replay:
            count = print_letters(name, chosen)
        else:
            done = replay_all(name, chosen)
            count = done.again + done.left
        subscriptions.count_letters(subscription.id, details["letters"], count)
    if replay and count:
        raise typer.Exit(1)
