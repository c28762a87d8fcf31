"""`tailrace topics`: what Kafka has to have, for owners who make their topics themselves."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from typing import Annotated

import typer

from tailrace.assembly.services import topics_of
from tailrace.cluster import LiveCluster
from tailrace.publish.kafka import KafkaLog
from tailrace.publish.kafka.topics import SchemaDestinations
from tailrace_common.cli.console import print_rows, say
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_common.settings import Settings
from tailrace_common.topics import SchemaReader
from tailrace_schemas.topics import Internal, TopicPlan, internal_topic

app = typer.Typer(no_args_is_help=True, help="Plan the topics that Tailrace needs.\n\nExample: tailrace topics plan")


@app.command()
def plan(
    config: SettingsFile = None,
    commands: Annotated[
        bool, typer.Option("--commands", help="Print a kafka-topics.sh command for each missing topic.")
    ] = False,
    brokers: Annotated[
        int | None,
        typer.Option(min=1, help="Future number of brokers, which decides on replicas. Default: the present number."),
    ] = None,
) -> None:
    """Print the topics that Tailrace needs, with their settings: its own, and one for each table with cdc = true.

    Prints each topic's purpose and state: present, `missing`, or present with unsuitable settings. Use it with
    `topics.create = false`, or before the agent's first start. Nothing is created.

    Example: tailrace topics plan --commands
    """
    settings = settings_of(config)
    kafka = topics_of(settings)
    existing, count = kafka.survey()
    needed = needed_topics(settings, existing)
    wrong = kafka.problems({topic.name: existing[topic.name] for topic in needed if topic.name in existing})
    if commands:
        missing = [topic for topic in needed if topic.name not in existing]
        for line in command_lines(missing, settings.kafka.bootstrap_servers, brokers or count):
            typer.echo(line)
        for problem in wrong:
            say(problem)
        return
    print_rows(plan_rows(needed, existing, wrong, brokers or count), empty="no topic is needed")


def needed_topics(settings: Settings, existing: Collection[str]) -> dict[TopicPlan, str]:
    """The plans of all topics -> what each is for: its own, and those of the tables that are selected.

    `existing` are Kafka's topics. Raises ServiceError, SettingsError.
    """
    plans = {settings.topics.internal_plan(internal): f"our {internal}" for internal in Internal}
    with closing(LiveCluster(settings.cluster)) as cluster:
        wants = settings.tables.selection.wants
        tables = sorted((table for table in cluster.definitions().tables if table.cdc and wants(table)), key=str)
    kafka, prefix = settings.kafka.reveal(), settings.topics.prefix
    with SchemaReader(kafka, prefix) as schemas:
        if internal_topic(prefix, Internal.SCHEMAS) in existing:
            schemas.refresh()
        log = KafkaLog(kafka, internal_topic(prefix, Internal.SCHEMAS))
        names = SchemaDestinations(prefix, topics_of(settings), log, schemas)
        for table in tables:
            plans[settings.topics.table_plan(names.topic(table))] = str(table)
    return plans


def plan_rows(
    needed: Mapping[TopicPlan, str], existing: Collection[str], wrong: Iterable[str], brokers: int
) -> list[dict[str, object]]:
    """One row per topic; `wrong` are the problems of those that exist, each naming its topic."""
    problems = tuple(wrong)
    rows: list[dict[str, object]] = []
    for topic, purpose in needed.items():
        mine = [words for words in problems if words.startswith(f"topic {topic.name} ")]
        state = "missing" if topic.name not in existing else "; ".join(mine) or "there"
        rows.append(
            {
                "topic": topic.name,
                "for": purpose,
                "partitions": topic.partitions,
                "replication_factor": topic.replication(brokers),
                "settings": topic.settings(brokers),
                "state": state,
            }
        )
    return rows


def command_lines(missing: Iterable[TopicPlan], bootstrap: str, brokers: int) -> list[str]:
    """A shell line for each topic."""
    return [
        shlex.join(
            [
                *("kafka-topics.sh", "--bootstrap-server", bootstrap, "--create", "--if-not-exists"),
                *("--topic", topic.name, "--partitions", str(topic.partitions)),
                *("--replication-factor", str(topic.replication(brokers))),
                *(
                    argument
                    for name, value in topic.settings(brokers).items()
                    for argument in ("--config", f"{name}={value}")
                ),
            ]
        )
        for topic in missing
    ]
