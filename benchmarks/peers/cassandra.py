"""Cassandra's own CommitLogReader over the same segments, in a Java process that stays warm."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tailrace.local.cassandra import CassandraSettings, cassandra_yaml, jvm_options
from tailrace_common.java.find import find_java, modules
from tailrace_common.java.jars import fetch_sets

_SOURCE: Final = Path(__file__).with_name("VisitCommitLog.java")
_SMALL: Final = ("-Xm", "-XX:TieredStopAtLevel", "-XX:+UseSerialGC")


class Peer:
    """A running CommitLogReader."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self) -> tuple[int, float]:
        """Visit every cell once more: (mutations, CPU seconds of the whole process, collector and compiler too)."""
        pipe, answers = self._process.stdin, self._process.stdout
        if pipe is None or answers is None:
            raise RuntimeError("the peer was started without pipes")
        print(file=pipe, flush=True)
        mutations, _, nanoseconds = answers.readline().split()
        return int(mutations), int(nanoseconds) / 1e9


@contextmanager
def commit_log_reader(segments: Path, keyspace: str, table_id: str, create: str) -> Iterator[Peer | None]:
    """The peer, or None where no Java with a compiler is found."""
    java = find_java()
    if "jdk.compiler" not in modules(java.program):
        yield None
        return
    with TemporaryDirectory() as scratch:
        directory, settings = Path(scratch), CassandraSettings()
        for name in ("conf", "tmp"):
            (directory / name).mkdir()
        (directory / "conf" / "cassandra.yaml").write_text(json.dumps(cassandra_yaml(settings, directory, 9042, 7000)))
        (directory / "conf" / "logback.xml").write_text('<configuration><root level="OFF"/></configuration>')
        # As a server runs: with the second compiler, and the collector and heap of its choice.
        options = [o for o in jvm_options(settings, directory, None) if not o.startswith(_SMALL)]
        jars = ":".join(map(str, fetch_sets("cassandra")))
        with (directory / "errors").open("w") as errors:
            process = subprocess.Popen(
                [str(java.program), *options, "-cp", jars, str(_SOURCE), str(segments), keyspace, table_id, create],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        try:
            yield Peer(process)
        finally:
            process.kill()
            process.wait()
