"""Jobs of one's own that merge: the example that aggregates orders a minute, as whoever reads the page would run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tailrace.local import LocalKafka
from tailrace_schemas.change import Change, Deletion, Op
from tests.integration.feed import Feed
from tests.services.class_archive import quick_java_lines
from tests.unit.spark.cassandra import Log, source
from tests.unit.tables import table

EXAMPLE = Path(__file__).parents[2] / "examples" / "orders_a_minute.py"
ORDERS = table(
    {"shop": "int"}, {"id": "int"}, regular={"placed": "timestamp", "amount": "int"}, keyspace="shop", name="orders"
)
NOON = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)
AT = 1_714_000_000_000_000


def minute(number: int) -> int:
    """A time in a minute, in milliseconds."""
    return int((NOON + timedelta(minutes=number, seconds=7)).timestamp() * 1000)


def truncation(at: int) -> Change:
    deletion = Deletion(at, at // 1_000_000)
    return Change(op=Op.TRUNCATE, table=ORDERS, token=0, key=None, deletion=deletion, digest=bytes(16), source=source())


def run(kafka: LocalKafka, prefix: str, directory: Path) -> list[dict[str, Any]]:
    """The minutes after the last batch of a run, which takes nine records a batch."""
    config = directory / "tailrace.toml"
    config.write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n[topics]\nprefix = "{prefix}"\n'
        '[stream]\nmax_offsets_per_trigger = 9\n[stream.spark]\n"spark.master" = "local[2]"\n'
        f"{quick_java_lines()}"
    )
    command = [sys.executable, str(EXAMPLE), "-c", str(config), "--folder", str(directory / "orders"), "--once"]
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=directory, timeout=600, env={**os.environ, "TZ": "UTC"}
    )
    assert ended.returncode == 0, ended.stderr
    shown = [json.loads(line) for line in ended.stdout.splitlines()]
    last = max(line.pop("batch") for line in [dict(line) for line in shown])
    return [{name: line[name] for name in ("minute", "orders", "amount")} for line in shown if line["batch"] == last]


def minutes(orders: dict[int, list[int]]) -> list[dict[str, Any]]:
    return [
        {
            "minute": (NOON + timedelta(minutes=number)).replace(tzinfo=None).isoformat(),
            "orders": len(amounts),
            "amount": sum(amounts),
        }
        for number, amounts in sorted(orders.items())
    ]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.promise("spark.merged")
def test_the_example_has_each_order_in_its_minute(kafka: LocalKafka, prefix: str, feed: Feed, tmp_path: Path) -> None:
    log = Log(ORDERS)
    orders = [log.insert((1,), (number,), AT, placed=minute(number % 3), amount=10) for number in range(12)]
    others = [log.insert((2,), (number,), AT, placed=minute(5), amount=100) for number in range(3)]
    feed.publish([*orders, *others, *orders])  # each replica publishes its own copy
    assert run(kafka, prefix, tmp_path) == minutes({0: [10] * 4, 1: [10] * 4, 2: [10] * 4, 5: [100] * 3})
    feed.publish(
        [
            log.update((1,), (0,), AT + 2, amount=11),  # another amount
            log.update((1,), (1,), AT + 2, placed=minute(2)),  # another minute
            log.update((1,), (2,), AT - 2, amount=99),  # older than what is there
            log.delete((1,), (3,), AT + 2),
            log.insert((1,), (3,), AT + 1, placed=minute(0), amount=5),  # late: its deletion is newer
            log.delete_partition((2,), AT + 2),
            log.insert((2,), (9,), AT + 3, placed=minute(5), amount=7),
            log.insert((1,), (20,), AT + 2, placed=minute(4), amount=1),
        ]
    )
    changed = {0: [11, 10, 10], 1: [10] * 3, 2: [10] * 5, 4: [1], 5: [7]}
    assert run(kafka, prefix, tmp_path) == minutes(changed)
    feed.publish([truncation(AT + 2), log.insert((1,), (30,), AT + 4, placed=minute(6), amount=2)])
    assert run(kafka, prefix, tmp_path) == minutes({5: [7], 6: [2]})
