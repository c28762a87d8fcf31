"""Subscriptions in Kafka: a server is killed between a change and its publication, and all of them are rebuilt."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.local import LocalKafka
from tailrace_common.kafka import read_to_end
from tailrace_server.mirror.records import Mirrored, mirrored
from tests.integration.server.servers import Site

SECRET = "hunter2"  # noqa: S105 - it has to be found where it must not be


class Mirror:
    """The topic, as it is by now."""

    def __init__(self, kafka: LocalKafka, prefix: str) -> None:
        self._config = {"bootstrap.servers": kafka.bootstrap}
        self._topic = f"{prefix}.subscriptions"

    def content(self) -> Mirrored:
        records = [(record.key, record.value) for record in read_to_end(self._config, self._topic, 0)]
        assert SECRET.encode() not in b"".join(value or b"" for _, value in records)
        return mirrored(records)

    def states(self) -> dict[str, str]:
        """States by name."""
        rows = [dict(rows)["subscribe"] for rows in self.content().rows.values()]
        return {row["name"]: row["state"] for row in rows}


def subscribe(site: Site, name: str) -> None:
    site.subscribe(name, "shop.items", f"postgresql://u:{SECRET}@127.0.0.1:1/d")


@pytest.mark.long
@pytest.mark.promise("subscription.mirrored")
def test_an_empty_meta_database_is_rebuilt(tmp_path: Path, kafka: LocalKafka, prefix: str) -> None:
    site = Site(tmp_path, kafka, prefix, f"sqlite:///{tmp_path / 'meta.db'}", mirror=True)
    mirror = Mirror(kafka, prefix)
    for name in ("a", "b", "c"):
        subscribe(site, name)
    with site.server("first", "--role", "api") as first:
        first.until(lambda: f"publishes subscriptions in {prefix}.subscriptions" in first.words())
        first.until(lambda: mirror.states() == dict.fromkeys("abc", "active"))
        first.kill()
    with site.operations() as operations:
        operations.pause("a")
        operations.cancel("c")
    reachable = site.config.read_text()
    site.config.write_text(reachable.replace(kafka.bootstrap, "127.0.0.1:1"))
    with site.server("cut-off", "--role", "api") as cut_off:  # what it commits, it cannot publish
        cut_off.until(lambda: "subscriptions are not mirrored" in cut_off.words())
        subscribe(site, "d")
        cut_off.kill()
    site.config.write_text(reachable)
    assert mirror.states() == dict.fromkeys("abc", "active")
    wanted = {"a": "paused", "b": "active", "d": "active"}
    with site.server("second", "--role", "api") as second:
        second.until(lambda: mirror.content().rows.keys() == {b"1", b"2", b"4"})
        second.until(lambda: mirror.states() == wanted)
        assert second.stop() == 0, second.words()
    before = {name: {**row, "behind": None} for name, row in site.states().items()}
    with site.operations() as operations:
        settings = operations.details("d")["settings"]
        operations.cancel("d")
    with site.server("third", "--role", "api") as third:
        third.until(lambda: mirror.content().rows.keys() == {b"1", b"2"})
        assert third.stop() == 0, third.words()
    del before["d"]
    (tmp_path / "meta.db").unlink()
    site.tailrace("server-meta", "restore", "--from-topic")
    assert site.states() == before
    refused = site.run("server-meta", "restore", "--from-topic")
    assert refused.returncode != 0
    assert f"has subscriptions of {prefix}: restore into a new one" in refused.stderr
    subscribe(site, "d")
    with site.operations() as operations:
        assert operations.details("d")["settings"] == settings
    assert site.states()["d"]["id"] == 5  # no id comes again
