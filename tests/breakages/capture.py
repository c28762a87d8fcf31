"""Breakages of reading: cdc_raw, its spool and its end, damaged and foreign files, crashes of the node, early mode."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Red, breakage
from tests.breakages.mutations import argument, compare, constant, drop, give, insert, replace, swap, together, unwrap

FILES: Final = "integration/faults/test_files.py"
SPACE: Final = "integration/faults/test_space.py"
CRASHES: Final = "integration/faults/test_crashes.py"
LIFE: Final = "integration/test_cdc_raw_life.py"
EARLY: Final = "integration/test_early.py"
READING: Final = "unit/capture/test_cdcraw.py"
LOOP: Final = "unit/agent/test_loop.py"

BREAKAGES: Final = {
    "one-marker-too-far": breakage(
        "nothing is published that the index has not released",
        "tailrace.segments.open_segment:OpenSegment._next_section",
        together(
            compare("self._cursor.logical >= released", ">"),
            drop("if released is not None and ...: ..."),
        ),
        Red(READING, "test_only_what_the_index_released"),
        Red("unit/capture/test_recorded.py", "test_a_growing_index_releases_section_by_section"),
    ),
    "release-of-what-was-read": breakage(
        "a segment is released only at or below a committed position",
        "tailrace.retention.finished_segments:FinishedSegments.releasable",
        replace("end <= position and id <= self._committed", "id <= self.read_up_to"),
        Red(READING, "test_a_finished_segment_is_released_only_at_or_below_a_committed_position"),
    ),
    "release-without-its-ddl": breakage(
        "a segment is released only when all of its DDL is read",
        "tailrace.agent.commits:Commits.release",
        unwrap("min(...)", "self._committed"),
        Red(LOOP, "test_a_segment_is_released_only_when_its_ddl_is_known_to_be_read"),
    ),
    "nothing-is-retracted": breakage(
        "what a crash took back of early changes is announced",
        "tailrace.capture.cdcraw:CdcRaw._finish",
        drop("self._register.retract(...)"),
        Red("unit/capture/test_candidates.py", "test_what_a_crash_took_back_is_announced"),
    ),
    "the-wall-clock-judges-life": breakage(
        "of a wall clock that jumps only `seen` shows anything",
        "tailrace.cli.agent:agent",
        argument("HealthBoard(time.monotonic)", 0, "time.time"),
        Red("integration/faults/test_clock.py", "test_a_clock_that_jumps", r"assert states =="),
        session="agent",
    ),
    "a-bad-checksum-costs-one-mutation": breakage(
        "what is damaged is read up to the damage and no further",
        "tailrace.commitlog.frames:Stretch.take",
        replace(
            "payload = ...",
            """
            try:
                payload = frame_payload(data, offset, length, base)
            except Exception:
                offset += length + OVERHEAD
                continue
            """,
        ),
        Red(FILES, "test_damaged_segments", r"assert named\(\)|len\(named\(\)\) >= len\(good\)"),
        session="agent",
    ),
    "damage-is-an-end": breakage(
        "a damaged segment is quarantined and kept",
        "tailrace.capture.candidates:CurrentSegment.is_torn",
        give("self.file.position.offset > 0"),
        Red(FILES, "test_damaged_segments", r"len\(named\(\)\) >= len\(good\)"),
        session="agent",
    ),
    "foreign-files-at-each-look": breakage(
        "files that are none of Cassandra's are reported once",
        "tailrace.capture.candidates:Listings._warn_foreign",
        replace("self._foreign |= new", "self._foreign = new"),
        Red(READING, "test_foreign_files_are_left_alone_with_one_warning"),
    ),
    "an-old-number-is-an-old-segment": breakage(
        "a segment of another log is never taken for one that was published",
        "tailrace.retention.finished_segments:Ledger.knows",
        replace(
            "checksum is not None and checksum == header_checksum(path)",
            "checksum is None or checksum == header_checksum(path)",
        ),
        Red(READING, "test_another_log_below_the_position_stops_everything"),
    ),
    "released-and-forgotten": breakage(
        "what the node's replay links again is not taken for another log's",
        "tailrace.retention.finished_segments:Ledger._take_log",
        replace("self.released[segment] = ...", "self.linked.pop(segment, 0)"),
        Red(CRASHES, "test_a_cassandra_that_crashes", r"exit code 1\b"),
        session="agent",
    ),
    "a-log-of-few-segments": breakage(
        "what the node's replay links again is not taken for another log's, at any size of the log",
        "tailrace.retention.finished_segments:Ledger.forget_missing",
        together(
            unwrap("max(REMEMBERED, self._counted, self.capacity() or 0)", "REMEMBERED"),
            drop("segment < min(self._held, ...)"),
        ),
        Red(CRASHES, "test_a_cassandra_that_crashes_with_hundreds_of_segments", r"exit code 1\b"),
        session="life",
    ),
    "released-and-left": breakage(
        "released segments make room in a full cdc_raw, and writes go on",
        "tailrace.assembly.cdc_raw:release_of",
        swap("KEPT", "DELETED"),
        Red(LIFE, "test_a_full_cdc_raw_is_freed_and_writes_go_on", r"> +until\("),
        session="full",
    ),
    "the-spool-is-not-read-back": breakage(
        "what waits in the spool is published when Kafka is back",
        "tailrace.capture.candidates:Candidates.next",
        insert("done |= files.spooled", before="if done or ...: ..."),
        Red(LIFE, "test_a_kafka_outage_does_not_stop_writes", r'agent\.count\("changes"\) >= total'),
        session="life",
    ),
    "lost-is-not-told": breakage(
        "segments that vanished unread are reported, with the exact gap",
        "tailrace.retention.missing:Register.look",
        replace("self._add(Missing.LOST, span, position)", "self._reported = united(self._reported, [span])"),
        Red("unit/retention/test_missing.py", "test_a_segment_that_had_an_index_and_vanished_is_lost"),
    ),
    "half-a-copy-stays": breakage(
        "a spool that was full is empty again when Kafka goes on",
        "tailrace.retention.release:_copy",
        drop("with suppress(OSError): ..."),
        Red(SPACE, "test_a_spool_that_is_full", r"\.partial|writes are refused still|not in \d+ s"),
        session="life",
    ),
    "a-log-that-must-be-written": breakage(
        "changes go on where the agent's own files have no space",
        "tailrace_common.cli.logs:set_up_logging",
        insert(
            """
            def fail(record):
                raise
            handler.handleError = fail
            """,
            before="handler.setFormatter(...)",
        ),
        Red(SPACE, "test_a_disk_that_is_full", r"> +until_more\(agent, 600\)"),
        session="agent",
    ),
    "what-replay-deletes-is-empty": breakage(
        "changes that replay gives no index are published",
        "tailrace.capture.recovery:Recovery.applies",
        give("False"),
        Red(CRASHES, "test_tracking_that_ends_right_before_a_crash", r"_are_published"),
        session="life",
    ),
    "deleted-by-others-is-empty": breakage(
        "segments that somebody else deleted are read from the commit log, or reported by their ids",
        "tailrace.retention.missing:Register.appeared",
        insert("if not index.exists(): return"),
        Red("unit/segments/test_kept.py", "test_an_index_that_was_deleted_at_once_is_missed"),
    ),
    "the-commit-log-is-not-looked-at": breakage(
        "segments that somebody else deleted while no agent ran are read from the commit log",
        "tailrace.capture.recovery:Recovery.look",
        insert("return", before="present = ..."),
        Red(
            "unit/segments/test_kept.py",
            "test_what_somebody_deleted_from_cdc_raw_is_read_from_the_commit_log",
        ),
    ),
    "any-header-will-do": breakage(
        "what is no segment, whatever its name, makes no segment look finished",
        "tailrace.segments.open_segment:is_genuine",
        constant("read_descriptor(...).id == files.id", True),
        Red(READING, "test_a_file_that_is_no_segment_ends_no_segment[CommitLog-7-99.log-header of another]"),
        Red("unit/retention/test_pressure.py", "test_a_copy_under_a_later_name_makes_no_segment_final"),
    ),
    "early-is-not-marked": breakage(
        "what is not flushed is marked",
        "tailrace.capture.cdcraw:CdcRaw.durable",
        give("None"),
        Red(EARLY, "test_early_mode_does_not_wait_for_the_flush"),
        session="life",
    ),
    "a-mistyped-pattern-releases": breakage(
        "nothing is released while no table with cdc is selected",
        "tailrace.agent.tables:SelectionWatch.__call__",
        replace("not fit.selected", "not fit.names"),
        Red("unit/agent/test_tables.py", "test_patterns_that_select_nothing_lose_nothing"),
    ),
}
