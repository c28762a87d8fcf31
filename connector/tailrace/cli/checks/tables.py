"""`tailrace check` of the tables: which have cdc = true, which of them are published, and which patterns are wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tailrace.publish.selection import Coverage, Selection, coverage, listed
from tailrace.schema.bypassing import Bypass, bypass_words
from tailrace_common.cli.checks import Check
from tailrace_common.column_masks import ALL_MASKS, Rows, can_mask, masked_words
from tailrace_common.settings import Settings
from tailrace_schemas.table import Table


def check_tables(settings: Settings, tables: Iterable[Table]) -> Iterator[Check]:
    """How the selection fits these tables; a row more for each kind of mistake in it."""
    fit = coverage(Selection(settings.tables.include, settings.tables.exclude), tables)
    released = settings.tables.release_unselected
    yield _selected(fit, released=released)
    if fit.untaken:
        pronoun, their = ("it", "its") if len(fit.untaken) == 1 else ("them", "their")
        advice = f"name {pronoun} in tables.include, or in tables.exclude if {their} changes are left out on purpose"
        yield Check("tables without a pattern", released, fit.untaken_words(), advice)
    if clauses := fit.unmatched_words():
        advice = "correct the pattern: it has the form keyspace.table. If the table is yet to be made, make it first"
        yield Check("patterns", False, "; ".join(clauses), advice)
    if fit.without_cdc:
        match = "matches" if len(fit.without_cdc) == 1 else "match"
        detail = f"tables.include: {listed(fit.without_cdc)} {match} only tables without cdc"
        yield Check("tables without cdc", True, detail, "ALTER TABLE ... WITH cdc = true, if they are to be published")
    if fit.unmatched_exclude:
        match = "matches" if len(fit.unmatched_exclude) == 1 else "match"
        detail = f"tables.exclude: {listed(fit.unmatched_exclude)} {match} no table"
        yield Check("exclude patterns", True, detail, "check the spelling: what is not excluded is published")


def check_logged(settings: Settings, bypassing: Iterable[Bypass]) -> Iterator[Check]:
    """Selected tables whose writes never reach cdc_raw, of those that bypass the commit log; a row where there are."""
    selection = Selection(settings.tables.include, settings.tables.exclude)
    selected = [bypass for bypass in bypassing if selection.wants(bypass.table)]
    if selected:
        yield Check("tables logged", False, *bypass_words(selected))


def check_masked(settings: Settings, tables: Iterable[Table], rows: Rows, release: str) -> Iterator[Check]:
    """Selected tables of which SELECT gives this role masked values; a row where there are. Raises ServiceError."""
    if settings.snapshot.allow_masked_values or not can_mask(release):
        return
    columns: dict[tuple[object, object], list[str]] = {}
    for keyspace, name, column in rows(ALL_MASKS):
        columns.setdefault((keyspace, name), []).append(str(column))
    fit = coverage(Selection(settings.tables.include, settings.tables.exclude), tables)
    masked = [
        masked_words(rows, keyspace, name, columns[keyspace, name], settings.cluster.username)
        for keyspace, _, name in (table.partition(".") for table in fit.selected)
        if (keyspace, name) in columns
    ]
    refusals = [words for words in masked if words is not None]
    if refusals:
        copied = settings.stream.snapshot != "never"
        advice = "until then existing rows are not copied, compared or read back; the log has what is stored"
        yield Check("masked columns", not copied, "; ".join(refusals), advice)


def _selected(fit: Coverage, *, released: bool) -> Check:
    if fit.selected:
        return Check("tables", True, ", ".join(fit.selected))
    if not fit.selects_nothing:
        return Check("tables", True, "no table has cdc = true", "ALTER TABLE ... WITH cdc = true")
    detail = f"none of the tables with cdc = true is selected: {listed((*fit.untaken, *fit.excluded))}"
    if released:
        return Check("tables", True, detail, "their changes are given up, as tables.release_unselected = true says")
    advice = (
        "correct tables.include and tables.exclude. Until then nothing is published, and the segments are kept; "
        "tables.release_unselected = true gives these changes up"
    )
    return Check("tables", False, detail, advice)
