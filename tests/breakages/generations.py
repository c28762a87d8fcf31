"""Breakages of generations and streams: of rings that change, of the topic, look-ups, the mirror, readers of logs."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Needs, Red, breakage
from tests.breakages.mutations import argument, drop, give, insert, replace, swap, unwrap

JOINING: Final = "integration/topology/test_three_nodes.py"
CHANGING: Final = "integration/topology/test_changing_ring.py"
COMPLETENESS: Final = "unit/spark/job/test_upkeep.py"
UPKEEP: Final = "unit/spark/job/test_upkeep.py"

BREAKAGES: Final = {
    "a-ring-is-its-tokens": breakage(
        "a node that is replaced makes a new ring, though its tokens stay",
        "tailrace.topology.ring_watch:ring_digest",
        give("hash(ring.tokens)"),
        Red(
            "unit/topology/test_ring_watch.py",
            "test_a_change_settles_for_a_ring_delay_and_is_proposed_once"
            "[a node is replaced: same tokens, another host id]",
        ),
    ),
    "the-present-ring-is-the-settled-one": breakage(
        "a change of the ring makes one generation, not one for each look at it",
        "tailrace.topology.ring_watch:RingWatch.judge",
        insert("moving = [] if latest is not None else moving", before="if moving: ..."),
        Red("unit/topology/test_ring_watch.py", "test_a_ring_waits_until_all_its_nodes_are_normal"),
    ),
    "whoever-says-it-expires": breakage(
        "a generation goes when nothing of its time is kept, by the broker's clock",
        "tailrace_schemas.generation_records:GenerationLog._expire",
        drop("appended - retention < oldest"),
        Red("unit/schemas/test_streams.py", "test_what_breaks_a_rule_lets_nothing_go[too early by a millisecond]"),
    ),
    "a-commit-just-in-time": breakage(
        "a generation is known 5 s before it operates",
        "tailrace_schemas.generation_records:GenerationLog._judge",
        unwrap("commit.timestamp - LEEWAY_MS", "commit.timestamp"),
        Red("unit/schemas/test_generation_records.py", "test_what_breaks_a_rule_is_ignored[late by a millisecond]"),
    ),
    "tokens-without-their-sign": breakage(
        "a change and its stream have the same replicas",
        "tailrace_spark.streams.lookup:GenerationColumns.look_up",
        replace("unsigned(tokens)", "tokens.astype(np.int64, copy=False).view(np.uint64)"),
        Red("integration/test_stream_ids.py", "test_every_row_has_its_stream_id"),
        Red(JOINING, "test_a_fourth_node_joins_under_load", r"assert \(row.generation, stream.value\) =="),
        Red(CHANGING, "test_every_change_of_the_ring_is_one_generation", r"assert \(row.generation, stream.value\) =="),
        needs=Needs.MORE,
    ),
    "the-first-moment-is-the-old-ones": breakage(
        "a change is assigned by its write time, to the microsecond",
        "tailrace_spark.streams.lookup:StreamTable.assign",
        argument("np.searchsorted(...)", "side", "'left'"),
        Red("unit/spark/streams/test_lookup.py", "test_equal_to_the_scalar_rules"),
    ),
    "logs-that-stay-are-not-counted": breakage(
        "the v1 table is imported whole, as far as tables with CDC keep changes",
        "tailrace.topology.mirror:generations_to_copy",
        drop("if 0 in ttls: ..."),
        Red("unit/topology/test_mirror_import.py", "test_step_5_skips_what_no_table_has_changes_of"),
    ),
    "complete-before-it-is-written": breakage(
        "a log is complete up to its watermark",
        "tailrace_spark.job.upkeep:WatermarkTracker._settle",
        replace("all", "any"),
        Red(COMPLETENESS, "test_a_topic_is_complete_once_the_stream_has_written_up_to_its_ends"),
    ),
    "a-log-table-at-its-first-change": breakage(
        "a log table is there before the first change of its table",
        "tailrace_spark.job.upkeep:Upkeep._announce",
        drop("self._sink.announce(...)"),
        Red(UPKEEP, "test_a_sink_is_given_the_tables_that_the_stream_reads_in_the_order_of_their_definitions"),
    ),
    "progress-before-the-window": breakage(
        "a reader of log tables that dies inside a window reads it again",
        "examples.log_reader.reader:Reader.read",
        swap("for write in ...: ...", "self._progress.save(...)"),
        Red("integration/test_log_tables.py", "test_a_reader_of_scylladbs_kind_replicates_a_table"),
        needs=Needs.NODE,
    ),
}
