"""`tailrace check` of the mirror: its keyspace and tables, whether it can be written, and which generations it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Final

from tailrace.topology.mirror import MirrorStore
from tailrace.topology.mirror_plan import MirrorOptions, Removal, is_removable
from tailrace.topology.mirror_tables import (
    IdForm,
    MirrorTable,
    Shapes,
    create_table,
    default_replication,
    existing_form,
    require_shapes,
    wanted,
)
from tailrace_common.cli.checks import Check, judge
from tailrace_common.sections.agent import MirrorSettings
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.generation_records import PublishedGeneration
from tailrace_schemas.ring import Ring

_PROBE: Final = Removal(MirrorTable.LOCAL, ("key",), ("tailrace check",), 1)
"""Removes a row that nobody writes, at a time before all others: it takes the right to write, and changes nothing."""
_MAKE: Final = "make it (docs/security.md 2), or set mirror.create = true"


def check_mirror(
    settings: MirrorSettings,
    store: MirrorStore,
    replication: Mapping[str, str] | None,
    ring: Ring,
    generations: Sequence[int],
) -> Iterator[Check]:
    """How the mirror stands to its settings. `replication` is the keyspace's own, None where there is none;
    `generations` are the timestamps of those in Kafka that readers still need. Raises ServiceError."""
    shapes = store.shapes()
    if shapes is None:
        copies = settings.replication or default_replication(ring)
        detail = f"there is no keyspace {store.keyspace}"
        if settings.create:
            yield Check("mirror", True, f"{detail}: an agent makes it, with {_copies(copies)}")
        else:
            yield Check("mirror", False, detail, _MAKE)
        return
    tables = _check_tables(settings, store.keyspace, shapes)
    yield tables
    yield _check_replication(settings, replication or {}, ring)
    if not tables.ok or MirrorTable.LOCAL not in shapes or MirrorTable.TIMESTAMPS not in shapes:
        return
    try:
        store.apply(_PROBE)
    except ServiceError as error:
        yield Check("mirror writes", False, str(error), "the rights are in docs/security.md 2")
    else:
        yield Check("mirror writes", True, "a majority of the replicas takes them")
    yield _check_generations(store, generations)


def needed_generations(
    published: Sequence[PublishedGeneration], options: MirrorOptions, now_ms: int
) -> tuple[int, ...]:
    """The timestamps of the generations that the mirror has to have now."""
    following = zip_longest(published, published[1:])
    return tuple(
        generation.timestamp
        for generation, successor in following
        if successor is None or not is_removable(successor.timestamp, options, now_ms)
    )


def _check_tables(settings: MirrorSettings, keyspace: str, shapes: Shapes) -> Check:
    form = IdForm(settings.stream_ids) if settings.stream_ids else existing_form(shapes) or IdForm.BLOB
    try:
        require_shapes(keyspace, shapes, wanted(settings.v1), form)
    except SettingsError as error:
        return Check("mirror", False, str(error), "see [mirror]")
    missing = [table for table in wanted(settings.v1) if table not in shapes]
    detail = f"keyspace {keyspace}, stream ids as {form}"
    if not missing:
        return Check("mirror", True, detail)
    detail += f"; without {', '.join(missing)}"
    if settings.create:
        return Check("mirror", True, f"{detail}: an agent makes them")
    statements = "; ".join(create_table(keyspace, table, form) for table in missing)
    return Check("mirror", False, detail, f"{_MAKE}: {statements}")


def _check_replication(settings: MirrorSettings, replication: Mapping[str, str], ring: Ring) -> Check:
    detail = ", ".join(f"{name}: {value}" for name, value in sorted(replication.items()))
    copies = {name: value for name, value in replication.items() if name != "class"}
    if settings.replication is not None:
        configured = {name: str(copy_count) for name, copy_count in settings.replication.items()}
        advice = f"mirror.replication says {_copies(settings.replication)}: ALTER KEYSPACE, or correct the setting"
        return judge("mirror replication", copies == configured, detail, advice)
    fewer = [
        dc
        for dc, copy_count in default_replication(ring).items()
        if int(copies.get(dc, "0").split("/")[0]) < copy_count
    ]
    simple = "SimpleStrategy" in replication.get("class", "")
    words = f"fewer than three copies in {', '.join(sorted(fewer))}: readers there depend on few nodes"
    advice = "NetworkTopologyStrategy lets each datacenter have copies of its own" if simple else words if fewer else ""
    return Check("mirror replication", True, detail, advice)


def _check_generations(store: MirrorStore, generations: Sequence[int]) -> Check:
    present = set(store.expirations(MirrorTable.TIMESTAMPS))
    missing = sorted(set(generations) - present)
    detail = f"{len(generations) - len(missing)} of {len(generations)} generations in Kafka"
    if missing:
        detail += f"; without those of {', '.join(map(str, missing[:3]))}{' and more' if len(missing) > 3 else ''} (ms)"
    advice = "an agent with this [mirror] writes them within seconds: is one running, and what does its /status say?"
    return judge("mirror generations", not missing, detail, advice)


def _copies(replication: Mapping[str, int]) -> str:
    return ", ".join(f"{copy_count} copies in {dc}" for dc, copy_count in sorted(replication.items()))
