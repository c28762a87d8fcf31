"""A table whose copy misses changes of each kind, and what a comparison says of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from tailrace_spark.comparison.rows import Difference, Kind
from tailrace_spark.comparison.run import Compared, Comparison, repair

Pieces = TypeVar("Pieces")
Outcome = TypeVar("Outcome")


def run_here(work: Sequence[Pieces], task: Callable[[Iterator[Pieces]], Iterable[Outcome]]) -> list[Outcome]:
    """As Spark does, one after the other in this process."""
    return [outcome for pieces in work for outcome in task(iter([pieces]))]


TABLE = "CREATE TABLE KS.t (k int, c int, s text STATIC, v text, w int, m map<text, int>, PRIMARY KEY (k, c))"


def write_source(run: Callable[[str], object]) -> None:
    """Make the table, with 20 static rows and 60 others, all at write time 1000."""
    run(TABLE)
    for key in range(20):
        run(f"UPDATE KS.t USING TIMESTAMP 1000 SET s = 's{key}' WHERE k = {key}")
        for line in range(3):
            run(
                f"INSERT INTO KS.t (k, c, v, w, m) VALUES ({key}, {line}, 'v{line}', {line}, {{'a': 1, 'b': 2}}) "
                "USING TIMESTAMP 1000"
            )


def write_unseen(run: Callable[[str], object]) -> None:
    """Change it in each way that a stream could lose, at write time 2000."""
    run("UPDATE KS.t USING TIMESTAMP 2000 SET v = 'new' WHERE k = 1 AND c = 0")
    run("DELETE w, m['a'] FROM KS.t USING TIMESTAMP 2000 WHERE k = 2 AND c = 1")
    run("DELETE FROM KS.t USING TIMESTAMP 2000 WHERE k = 3 AND c = 2")
    run("DELETE FROM KS.t USING TIMESTAMP 2000 WHERE k = 4")
    run("INSERT INTO KS.t (k, c, v) VALUES (50, 1, 'x') USING TIMESTAMP 2000")
    run("UPDATE KS.t USING TIMESTAMP 2000 SET s = 'other' WHERE k = 5")


UNSEEN: Final = {
    (1, 0, Kind.DIFFERENT, ("v",)),
    (2, 1, Kind.DIFFERENT, ("m", "w")),
    (3, 2, Kind.EXTRA, ()),
    *[(4, line, Kind.EXTRA, ()) for line in range(3)],
    (4, Kind.EXTRA, ()),
    (50, 1, Kind.MISSING, ()),
    (5, Kind.DIFFERENT, ("s",)),
}
"""What is then told of it."""


def told(found: dict[tuple[bytes, bytes], Difference]) -> set[tuple[object, ...]]:
    """(key columns, kind, columns); of static rows the partition key alone."""
    return {(*item.shown, item.kind, tuple(sorted(item.columns))) for item in found.values()}


def require_repaired(comparison: Comparison, compared: Compared, anew: Callable[[], Comparison]) -> None:
    """A repair writes what is missing and different but for what was taken away, which it removes where it may."""
    left = repair(comparison, compared, remove=False, now=int(time.time()))
    assert {item.kind for item in left.values()} == {Kind.EXTRA, Kind.DIFFERENT}
    assert {item.shown[:2] for item in left.values() if item.kind is Kind.DIFFERENT} == {(2, 1)}
    assert repair(comparison, compared, remove=True, now=int(time.time())) == {}
    assert anew().compare().differences == {}
