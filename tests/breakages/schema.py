"""Breakages of what a change is: definitions by position, the cdc flag, parking, truncations, what a change holds."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Needs, Red, breakage
from tests.breakages.mutations import argument, compare, constant, drop, give, replace, together, unwrap

POSITION: Final = "integration/test_schema_by_position.py"
EVENTS: Final = "integration/test_schema_events.py"
AGENTS: Final = "integration/test_agent.py"
TRANSCODED: Final = "unit/changes/test_transcode.py"
DEFINITIONS: Final = "integration/faults/test_definitions.py"
COMMANDS: Final = "integration/test_commands.py"
FORMS: Final = "unit/schemas/avro/test_forms.py"

BREAKAGES: Final = {
    "a-year-that-no-calendar-has": breakage(
        "no value stops a stock reader, whatever forms [avro] chooses",
        "tailrace_schemas.avro.convert:forming",
        unwrap("(value, True) if ... else ...", "(value, True)"),
        Red(FORMS, "test_no_extreme_value_stops_a_stock_reader", "a stock reader never gets past the record"),
    ),
    "one-form-only": breakage(
        "our readers give the same values of every form that [avro] chooses, mixed in one topic too",
        "tailrace_schemas.avro.decode:Reader.record",
        drop("record = self._to_plain(record)"),
        Red(FORMS, "test_readers_of_ours_see_plain_records"),
    ),
    "an-epoch-says-nothing": breakage(
        "on Cassandra 6 the metadata epoch that a write names says which definition holds",
        "tailrace.history.schema:Timeline.written_by",
        drop("while index > 0 and ...: ..."),
        Red("unit/history/test_schema.py", "test_the_epoch_of_an_update_chooses_the_definition_and_its_flag"),
    ),
    "what-waits-is-forgotten": breakage(
        "what is parked outlives the agent",
        "tailrace.agent.commits:Commits.commit",
        argument("Resume(...)", "parked", None),
        Red("unit/agent/test_parking.py", "test_parked_mutations_outlive_the_agent"),
    ),
    "ddl-is-only-a-hint": breakage(
        "a change is decoded under the definition, and published by the flag, of its place in the log",
        "tailrace.schema.live:LiveSchema.follow",
        replace("apply_ddl(self._live, waiting)", "bool(self.learn())"),
        Red(POSITION, "test_ddl_while_the_agent_runs", r"(?m)^> +(check|end)\(bench"),
        Red(POSITION, "test_ddl_while_the_agent_is_stopped", r"(?m)^> +(check|end)\(bench"),
        Red("integration/faults/test_connections.py", "test_while_it_runs", r"not in \d+ s"),
        needs=Needs.NODE,
    ),
    "history-beside-the-changes": breakage(
        "the schema history is committed with the changes that follow from it",
        "tailrace.agent.commits:Commits.commit",
        argument("self._transaction.commit(...)", 1, "schema.unsent[:-1]"),
        Red(POSITION, "test_ddl_while_the_agent_is_killed_again_and_again", r"(?m)^> +(check|end)\(bench"),
        session="agent",
    ),
    "ddl-of-indexed-segments-alone": breakage(
        "DDL is read from segments without cdc data too",
        "tailrace.schema.ddl_log:SchemaLog._next",
        together(
            unwrap("self._kept.paths() | ...", "{id: files.log for id, files in self._files.items() if ...}"),
            replace("files.log is not None", "files.log is not None and files.index is not None"),
        ),
        Red(POSITION, "test_ddl_in_segments_without_cdc_data", r"(?m)not in \d+ s|^E +(AssertionError|assert)"),
        session="agent",
    ),
    "a-hole-leaves-no-mark": breakage(
        "what DDL that nobody could read may concern is marked",
        "tailrace.schema.logged:cross",
        argument("live.define(newest, gap.until, inferred=True)", "inferred", "False"),
        Red(POSITION, "test_ddl_that_nobody_read_is_placed_by_its_write_time", r"(?m)^> +assert \[one\.change"),
        session="agent",
    ),
    "a-table-that-is-gone-was-never-altered": breakage(
        "a table that was dropped behind a hole is marked up to its DROP",
        "tailrace.schema.logged:cross",
        drop("_doubt_dropped(live, gap)"),
        Red("unit/schema/test_reads.py", "test_a_table_that_was_dropped_behind_a_hole"),
    ),
    "a-read-is-the-log-s-word-after-a-restart": breakage(
        "the log's DDL counts over what was read of the cluster before it, after a restart too",
        "tailrace.schema.live:_was_read",
        give("False"),
        Red("unit/schema/test_reads.py", "test_the_log_counts_over_a_new_host_s_first_read[True]"),
    ),
    "a-batch-is-its-first-table": breakage(
        "of a batch over tables with cdc and without, all of the cdc part is published",
        "tailrace.history.decode:Definitions._may_change",
        drop("updates != 1"),
        Red(
            "unit/agent/test_parking.py",
            "test_a_mixed_mutation_is_parked_whole_and_published_whole[notes-late-orders]",
        ),
    ),
    "dropped-is-forgotten": breakage(
        "a table that was dropped while unread is published whole",
        "tailrace.history.schema:SchemaHistory.drop",
        replace(
            "return ...",
            """
            known = {id: timeline for id, timeline in self.timelines.items() if id in remaining}
            return self._with(known, remaining, ()), SchemaDifference(dropped=_sorted(dropped))
            """,
        ),
        Red(AGENTS, "test_a_table_dropped_while_unread_is_published_whole", r"not in \d+ s"),
        session="agent",
    ),
    "the-unexplained-is-dropped": breakage(
        "what no definition explains is parked, its segment kept",
        "tailrace.agent.loop:Session._publish_next",
        replace("not self._parking.park(entry, error)", "self._lot.full"),
        Red(COMMANDS, "test_what_nothing_explains_is_parked_told_and_published_by_hand", r"not in \d+ s"),
        needs=Needs.NODE,
    ),
    "a-truncation-in-one-partition": breakage(
        "a truncation is a change in every partition of its table's topic",
        "tailrace.publish.routing:Router.truncation",
        argument("range(route.partitions)", 0, "1"),
        Red(EVENTS, "test_everything_that_a_listener_would_hear_of", r"\[0, 1, 2, 0, 1, 2\]"),
        session="agent",
    ),
    "a-session-knows-its-own-changes-alone": breakage(
        "a truncation says where changes that it left were published before it, by an earlier session too",
        "tailrace.agent.translation:Published.behind",
        replace("self._capture.may_hold(table_id, upto, resumed)", "False"),
        Red("unit/agent/test_loop.py", "test_a_truncation_knows_what_earlier_sessions_published_behind_it"),
    ),
    "truncations-wait-for-changes": breakage(
        "a truncation is published once everything before it was, without an index too",
        "tailrace.agent.loop:Session._settle",
        drop("self._truncate()"),
        Red(EVENTS, "test_truncations_in_segments_without_cdc_data", r'== \[1, "truncate"\]'),
        session="agent",
    ),
    "removed-elements-say-nothing": breakage(
        "an element that was removed is told from one that was added",
        "tailrace_schemas.transcode.edits:put_edit",
        replace(
            "_put_elements(out, cells, data, column, column_index, first, raw_values, False)", "write_long(out, 0)"
        ),
        Red(TRANSCODED, "test_every_table_as_if_it_had_cdc[5.0.1/uncompressed]"),
    ),
    "fields-by-their-order": breakage(
        "single fields of a user type are told apart",
        "tailrace_schemas.transcode.edits:_field_cell",
        compare("_field_number(cells, data, cell) == number", ">="),
        Red(TRANSCODED, "test_every_table_as_if_it_had_cdc[5.0.1/uncompressed]"),
    ),
    "deletions-behind-data": breakage(
        "an older range deletion comes before a row",
        "tailrace.changes.transcode:_rank",
        constant("unit.written", 0),
        Red(TRANSCODED, "test_every_table_as_if_it_had_cdc[5.0.1/uncompressed]"),
    ),
    "schemas-of-a-megabyte-at-most": breakage(
        "a definition of any size that Cassandra takes is announced",
        "tailrace.assembly.services:open_router",
        argument("KafkaLog(...)", "largest", None),
        Red(DEFINITIONS, "test_a_large_definition[long-names-cdc]"),
        session="large definitions",
    ),
    "large-history-is-not-cut": breakage(
        "a definition that is larger than a record of the history keeps nothing back",
        "tailrace.history.records:history_values",
        constant("len(value) <= limit", True),
        Red(DEFINITIONS, "test_a_large_definition_with_topics_of_small_limits", r"not in \d+ s"),
        session="large definitions",
    ),
    "user-types-are-written-out": breakage(
        "a user type stands once in a definition, however often it is used",
        "tailrace_schemas.table_json:_type_to_json",
        give("_written_out(cql_type, types)"),
        Red("unit/schemas/test_large_definitions.py", "test_as_json"),
    ),
}
