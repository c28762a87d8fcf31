"""Breakages of generations and streams: of rings that change, of the topic, look-ups, the mirror, readers of logs."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import ASSERTED, Breakage, Needs, Red

RING_WATCH: Final = "connector/tailrace/topology/ring_watch.py"
GENERATIONS: Final = "schemas/tailrace_schemas/generation_records.py"
ASSIGN: Final = "spark/tailrace_spark/streams/lookup.py"

KEEPERS: Final = "integration/topology/test_keepers.py"
TOPIC: Final = "integration/topology/test_generations.py"
JOINING: Final = "integration/topology/test_three_nodes.py"
CHANGING: Final = "integration/topology/test_changing_ring.py"
MIRROR: Final = "integration/topology/test_mirror.py"
COMPLETENESS: Final = "unit/spark/job/test_completeness.py"
UPKEEP: Final = "unit/spark/job/test_upkeep.py"
SWITCH: Final = "integration/test_generation_switch.py"

WHOEVER: Final = "test_each_ring_has_one_generation_whoever_notices_and_whoever_dies"

BREAKAGES: Final = (
    Breakage(
        name="a-ring-is-its-tokens",
        promise="a node that is replaced makes a new ring, though its tokens stay",
        file=RING_WATCH,
        old="    return ring_seed(ring, None)\n",
        new="    return hash(ring.tokens)\n",
        needs=Needs.MORE,
        reds=(
            Red(KEEPERS, WHOEVER, "len\\(self.published\\(\\)\\) >= count"),
            Red(CHANGING, "test_every_change_of_the_ring_is_one_generation", "fifth replaced"),
        ),
    ),
    Breakage(
        name="the-present-ring-is-the-settled-one",
        promise="a change of the ring makes one generation, not one for each look at it",
        file=RING_WATCH,
        old='        if moving:\n            words = f"',
        new='        if moving and latest is None:\n            words = f"',
        needs=Needs.KAFKA,
        reds=(Red(KEEPERS, WHOEVER, ASSERTED),),
    ),
    Breakage(
        name="whoever-says-it-expires",
        promise="a generation goes when nothing of its time is kept, by the broker's clock",
        file=GENERATIONS,
        old="        if retention < 0 or appended - retention < oldest:\n",
        new="        if retention < 0:\n",
        needs=Needs.KAFKA,
        reds=(
            Red(TOPIC, "test_generations_of_which_no_change_is_kept_go_for_every_reader", "the first went too early"),
        ),
    ),
    Breakage(
        name="a-commit-just-in-time",
        promise="a generation is known 5 s before it operates",
        file=GENERATIONS,
        old="        if expected is not None and appended > commit.timestamp - LEEWAY_MS:\n",
        new="        if expected is not None and appended > commit.timestamp:\n",
        needs=Needs.KAFKA,
        reds=(Red(TOPIC, "test_the_brokers_time_decides_whether_a_proposal_came_early_enough", ASSERTED),),
    ),
    Breakage(
        name="a-tail-without-its-signs",
        promise="a key has the token that Cassandra gives it",
        file="schemas/tailrace_schemas/tokens.py",
        old=" if key[len(key) & ~15 :].isascii() else sign_extending_hash(key)\n",
        new="\n",
        needs=Needs.NOTHING,
        reds=(Red("unit/schemas/test_tokens.py", "test_cassandra_vectors_with_signed_tails", ASSERTED),),
    ),
    Breakage(
        name="tokens-without-their-sign",
        promise="a change and its stream have the same replicas",
        file=ASSIGN,
        old="        unsigned = tokens.astype(np.int64, copy=False).view(np.uint64) ^ _SIGN\n",
        new="        unsigned = tokens.astype(np.int64, copy=False).view(np.uint64)\n",
        needs=Needs.MORE,
        reds=(
            Red("integration/test_stream_ids.py", "test_every_row_has_its_stream_id", ASSERTED),
            Red(JOINING, "test_a_fourth_node_joins_under_load", r"assert \(row.generation, stream.value\) =="),
            Red(
                CHANGING,
                "test_every_change_of_the_ring_is_one_generation",
                r"assert \(row.generation, stream.value\) ==",
            ),
        ),
    ),
    Breakage(
        name="the-first-moment-is-the-old-ones",
        promise="a change is assigned by its write time, to the microsecond",
        file=ASSIGN,
        old='        operating = np.searchsorted(self.timestamps, milliseconds, side="right") - 1\n',
        new='        operating = np.searchsorted(self.timestamps, milliseconds, side="left") - 1\n',
        needs=Needs.KAFKA,
        reds=(
            Red(SWITCH, "test_generations_switch_in_the_middle_of_a_load", ASSERTED),
            Red(SWITCH, "test_a_stream_that_dies_between_generations", ASSERTED),
        ),
    ),
    Breakage(
        name="logs-that-stay-are-not-counted",
        promise="the v1 table is imported whole, as far as tables with CDC keep changes",
        file="connector/tailrace/topology/mirror_import.py",
        old="    if 0 in ttls:\n        return tuple(ordered)\n",
        new="",
        needs=Needs.NODE,
        reds=(Red(MIRROR, "test_the_v1_table_of_an_old_installation_is_imported_once", ASSERTED),),
    ),
    Breakage(
        name="complete-before-it-is-written",
        promise="a log is complete up to its watermark",
        file="spark/tailrace_spark/job/completeness.py",
        old="        if mark is not None and all(",
        new="        if mark is not None and any(",
        needs=Needs.NOTHING,
        reds=(Red(COMPLETENESS, "test_a_topic_is_complete_once_the_stream_has_written_up_to_its_ends", ASSERTED),),
    ),
    Breakage(
        name="the-ends-of-before-the-progress",
        promise="what a host's progress covers is at or below the ends that are read after it",
        file="spark/tailrace_spark/job/upkeep.py",
        old=(
            "        published = published_to(self._hosts.progress(), self._hosts.ring(), sink.lateness_ms)\n"
            "        complete = self._marks.step(published, self._hosts.ends(tables), reached, tables)\n"
        ),
        new=(
            "        ends = self._hosts.ends(tables)\n"
            "        published = published_to(self._hosts.progress(), self._hosts.ring(), sink.lateness_ms)\n"
            "        complete = self._marks.step(published, ends, reached, tables)\n"
        ),
        needs=Needs.NOTHING,
        reds=(Red(UPKEEP, "test_a_sink_is_told_what_is_complete_once_the_stream_has_written_it", ASSERTED),),
    ),
    Breakage(
        name="a-log-table-at-its-first-change",
        promise="a log table is there before the first change of its table",
        file="spark/tailrace_spark/job/upkeep.py",
        old="            self._sink.announce([(entry.announced, entry.table) for entry in news.values()])\n",
        new="            pass\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                UPKEEP,
                "test_a_sink_is_given_the_tables_that_the_stream_reads_in_the_order_of_their_definitions",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="progress-before-the-window",
        promise="a reader of log tables that dies inside a window reads it again",
        file="examples/log_reader/reader.py",
        old=(
            "        for write in self._writes(self._streams_of(generation), since, until):\n"
            "            consumer(write)\n"
            "        self._progress.save(Progress(generation.start, until))\n"
        ),
        new=(
            "        self._progress.save(Progress(generation.start, until))\n"
            "        for write in self._writes(self._streams_of(generation), since, until):\n"
            "            consumer(write)\n"
        ),
        needs=Needs.NODE,
        reds=(Red("integration/test_log_tables.py", "test_a_reader_of_scylladbs_kind_replicates_a_table", ASSERTED),),
    ),
)
