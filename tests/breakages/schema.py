"""Breakages of what a change is: definitions by position, the cdc flag, parking, truncations, what a change holds."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import ASSERTED, Breakage, Needs, Red

SCHEMA: Final = "connector/tailrace/schema/live.py"
SESSION: Final = "connector/tailrace/agent/session.py"
COMMITS: Final = "connector/tailrace/agent/commits.py"
HISTORY: Final = "connector/tailrace/history/schema.py"
EDITS: Final = "schemas/tailrace_schemas/transcode/edits.py"
FORMED: Final = "schemas/tailrace_schemas/avro/formed.py"
DECODE: Final = "schemas/tailrace_schemas/avro/decode.py"

POSITION: Final = "integration/test_schema_by_position.py"
EVENTS: Final = "integration/test_schema_events.py"
AGENTS: Final = "integration/test_agent.py"
PEERS: Final = "integration/faults/test_peers.py"
DEFINITIONS: Final = "integration/faults/test_definitions.py"
COMMANDS: Final = "integration/test_commands.py"
FORMS: Final = "unit/schemas/avro/test_forms.py"
ROUTING: Final = "unit/publish/test_routing.py"

BREAKAGES: Final = (
    Breakage(
        name="a-year-that-no-calendar-has",
        promise="no value stops a stock reader, whatever forms [avro] chooses",
        file=FORMED,
        old="(value, True) if first <= value <= last else (None, False)",
        new="(value, True)",
        needs=Needs.NOTHING,
        reds=(Red(FORMS, "test_no_extreme_value_stops_a_stock_reader", "a stock reader never gets past the record"),),
    ),
    Breakage(
        name="one-form-only",
        promise="our readers give the same values of every form that [avro] chooses, mixed in one topic too",
        file=DECODE,
        old="                record = self._to_plain(record)\n",
        new="                pass\n",
        needs=Needs.NOTHING,
        reds=(Red(FORMS, "test_readers_of_ours_see_plain_records", ASSERTED),),
    ),
    Breakage(
        name="an-epoch-says-nothing",
        promise="on Cassandra 6 the metadata epoch that a write names says which definition holds",
        file=HISTORY,
        old="        while index > 0 and (self.metadata[index] or 0) > metadata_epoch:\n            index -= 1\n",
        new="",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/history/test_schema.py",
                "test_the_epoch_of_an_update_chooses_the_definition_and_its_flag",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="what-waits-is-forgotten",
        promise="what is parked outlives the agent",
        file=COMMITS,
        old="            parked=self._lot.lots,\n",
        new="",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/agent/test_parking.py",
                "test_parked_mutations_outlive_the_agent",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="ddl-is-only-a-hint",
        promise="a change is decoded under the definition, and published by the flag, of its place in the log",
        file=SCHEMA,
        old="                changed |= apply_ddl(self._live, waiting)\n",
        new="                changed |= bool(self.learn())\n",
        needs=Needs.NODE,
        reds=(
            Red(POSITION, "test_ddl_while_the_agent_runs", r"(?m)^> +(check|end)\(bench"),
            Red(POSITION, "test_ddl_while_the_agent_is_stopped", r"(?m)^> +(check|end)\(bench"),
            Red(PEERS, "test_a_write_right_behind_ddl", r"(?m)^E +(AssertionError|assert|ValueError)"),
            Red("integration/faults/test_connections.py", "test_while_it_runs", r"not in \d+ s"),
        ),
    ),
    Breakage(
        name="history-beside-the-changes",
        promise="the schema history is committed with the changes that follow from it",
        file=COMMITS,
        old="        changes = self._transaction.commit(resume, schema.unsent)\n",
        new="        changes = self._transaction.commit(resume, schema.unsent[:-1])\n",
        needs=Needs.NODE,
        session="agent",
        reds=(
            Red(
                POSITION,
                "test_ddl_while_the_agent_is_killed_again_and_again",
                r"(?m)^> +(check|end)\(bench",
            ),
        ),
    ),
    Breakage(
        name="ddl-of-indexed-segments-alone",
        promise="DDL is read from segments without cdc data too",
        file="connector/tailrace/schema/ddl_log.py",
        old=(
            "        paths = self._kept.paths() | {id: files.log for id, files in self._files.items()"
            " if files.log is not None}\n"
        ),
        new=(
            "        paths = {id: files.log for id, files in self._files.items()"
            " if files.log is not None and files.index is not None}\n"
        ),
        needs=Needs.NODE,
        session="agent",
        reds=(Red(POSITION, "test_ddl_in_segments_without_cdc_data", r"(?m)not in \d+ s|^E +(AssertionError|assert)"),),
    ),
    Breakage(
        name="a-definition-that-came-back-is-old-news",
        promise="the last definition of a table in `.schemas` is its newest, also where a former one came back",
        file="connector/tailrace/publish/destinations.py",
        old="            again = newest and key == value_id and self._newest.get(table_id) != value_id\n",
        new="            again = False\n",
        needs=Needs.NOTHING,
        reds=(
            Red(ROUTING, "test_a_definition_that_comes_back_is_announced_again", ASSERTED),
            Red(ROUTING, "test_an_older_definition_is_announced_before_the_newest", ASSERTED),
            Red(ROUTING, "test_a_start_announces_a_definition_that_came_back_while_no_agent_ran", ASSERTED),
        ),
    ),
    Breakage(
        name="a-repeated-announcement-is-none",
        promise="a sink takes a definition that is announced again for the newest",
        file="common/tailrace_common/topics/schemas.py",
        old="                self._entries[record.key] = replace(existing, announced=record.offset)\n",
        new="",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/common/topics/test_schemas.py",
                "test_a_schema_that_is_announced_again_has_the_later_offset",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="a-hole-leaves-no-mark",
        promise="what DDL that nobody could read may concern is marked",
        file="connector/tailrace/schema/gaps.py",
        old="            live.define(newest, gap.until, inferred=True)\n",
        new="            live.define(newest, gap.until, inferred=False)\n",
        needs=Needs.NODE,
        session="agent",
        reds=(Red(POSITION, "test_ddl_that_nobody_read_is_placed_by_its_write_time", r"(?m)^> +assert \[one\.change"),),
    ),
    Breakage(
        name="a-batch-is-its-first-table",
        promise="of a batch over tables with cdc and without, all of the cdc part is published",
        file="connector/tailrace/history/decode.py",
        old="        return (table.cdc or updates != 1) and table.keyspace in self._keyspaces\n",
        new="        return table.cdc and table.keyspace in self._keyspaces\n",
        needs=Needs.NODE,
        session="agent",
        reds=(Red(POSITION, "test_mixed_batches", r"(?m)not in \d+ s|^E +(AssertionError|assert)"),),
    ),
    Breakage(
        name="dropped-is-forgotten",
        promise="a table that was dropped while unread is published whole",
        file=HISTORY,
        old="        return replace(self, current=remaining), SchemaDifference(dropped=_sorted(dropped))\n",
        new=(
            "        known = {id: one for id, one in self.timelines.items() if id in remaining}\n"
            "        return self._with(known, remaining, ()), SchemaDifference(dropped=_sorted(dropped))\n"
        ),
        needs=Needs.NODE,
        session="agent",
        reds=(Red(AGENTS, "test_a_table_dropped_while_unread_is_published_whole", r"not in \d+ s"),),
    ),
    Breakage(
        name="the-unexplained-is-dropped",
        promise="what no definition explains is parked, its segment kept",
        file=SESSION,
        old="            if not self._parking.park(entry, error):\n",
        new='            _LOG.warning("%s", error)\n            if self._lot.full:\n',
        needs=Needs.NODE,
        reds=(
            Red(AGENTS, "test_an_unknown_table_waits_until_it_is_explained", r'"parked" in agent'),
            Red(COMMANDS, "test_what_nothing_explains_is_parked_told_and_published_by_hand", r"not in \d+ s"),
        ),
    ),
    Breakage(
        name="the-rest-goes-with-the-unreadable",
        promise="a quarantine concerns its own segment alone",
        file=SESSION,
        old="        self._entries = deque(queued for queued in self._entries if queued.position.segment != segment)\n",
        new="        self._entries.clear()\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/agent/test_loop.py",
                "test_bytes_that_do_not_decode_quarantine_their_segment",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="a-truncation-in-one-partition",
        promise="a truncation is a change in every partition of its table's topic",
        file="connector/tailrace/publish/routing.py",
        old="            for kafka_partition in range(route.partitions)\n        )\n",
        new="            for kafka_partition in range(1)\n        )\n",
        needs=Needs.NODE,
        session="agent",
        reds=(Red(EVENTS, "test_everything_that_a_listener_would_hear_of", r"\[0, 1, 2, 0, 1, 2\]"),),
    ),
    Breakage(
        name="a-truncation-stands-where-its-record-does",
        promise="a truncation stands before the changes that it left",
        file="connector/tailrace/state/truncation.py",
        old="        return self.position if segment < 0 else ",
        new="        return self.position if segment < 1 << 62 else ",
        needs=Needs.NOTHING,
        reds=(Red("unit/agent/test_loop.py", "test_a_truncation_stands_before_the_changes_that_it_left", ASSERTED),),
    ),
    Breakage(
        name="truncations-wait-for-changes",
        promise="a truncation is published once everything before it was, without an index too",
        file=SESSION,
        old="        self._transaction.relax()\n        self._truncate()\n",
        new="        self._transaction.relax()\n",
        needs=Needs.NODE,
        session="agent",
        reds=(Red(EVENTS, "test_truncations_in_segments_without_cdc_data", r'== \[1, "truncate"\]'),),
    ),
    Breakage(
        name="removed-elements-say-nothing",
        promise="an element that was removed is told from one that was added",
        file=EDITS,
        old="    _put_elements(out, cells, data, column, column_index, first, raw_values, False)\n",
        new="    write_long(out, 0)\n",
        needs=Needs.NODE,
        reds=(
            Red(PEERS, "test_statics_collections_and_times_to_live", r"cell\.tombstone"),
            Red(PEERS, "test_what_was_published_is_what_the_log_has", r"\b[1-9]\d* altered\b"),
        ),
    ),
    Breakage(
        name="fields-by-their-order",
        promise="single fields of a user type are told apart",
        file=EDITS,
        old="        if _field_number(cells, data, cell) == number:\n            return cell\n",
        new="        if _field_number(cells, data, cell) >= number:\n            return cell\n",
        needs=Needs.NODE,
        reds=(Red(PEERS, "test_every_type_that_others_lose_or_change", r"for cell in updated\.cells"),),
    ),
    Breakage(
        name="deletions-behind-data",
        promise="an older range deletion comes before a row",
        file="connector/tailrace/changes/transcode.py",
        old="    return unit.written, unit.deletes, not unit.static, unit.wire_index\n",
        new="    return 0, unit.deletes, not unit.static, unit.wire_index\n",
        needs=Needs.NODE,
        reds=(Red(PEERS, "test_deletions_beside_writes", r"assert ops =="),),
    ),
    Breakage(
        name="schemas-of-a-megabyte-at-most",
        promise="a definition of any size that Cassandra takes is announced",
        file="connector/tailrace/assembly/services.py",
        old=", largest=settings.topics.max_message_bytes)\n",
        new=")\n",
        needs=Needs.MORE,
        session="large definitions",
        reds=(Red(DEFINITIONS, "test_a_large_definition[long-names-cdc]", ASSERTED),),
    ),
    Breakage(
        name="large-history-is-not-cut",
        promise="a definition that is larger than a record of the history keeps nothing back",
        file="connector/tailrace/history/records.py",
        old="    if len(value) <= limit:\n",
        new="    if value:\n",
        needs=Needs.MORE,
        session="large definitions",
        reds=(Red(DEFINITIONS, "test_a_large_definition_with_the_limits_of_an_earlier_version", r"not in \d+ s"),),
    ),
    Breakage(
        name="user-types-are-written-out",
        promise="a user type stands once in a definition, however often it is used",
        file="schemas/tailrace_schemas/table_json.py",
        old='    return types.number(cql_type) if cql_type.kind == "udt" else _written_out(cql_type, types)\n',
        new="    return _written_out(cql_type, types)\n",
        needs=Needs.NOTHING,
        reds=(Red("unit/schemas/test_large_definitions.py", "test_as_json", ASSERTED),),
    ),
)
