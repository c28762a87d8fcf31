"""Breakages of reading: cdc_raw, its spool and its end, damaged and foreign files, crashes of the node, early mode."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import ASSERTED, Breakage, Needs, Red

CDC_RAW: Final = "connector/tailrace/capture/cdcraw.py"
CANDIDATES: Final = "connector/tailrace/capture/candidates.py"
ENDS: Final = "connector/tailrace/retention/finished_segments.py"
LEDGER: Final = "connector/tailrace/retention/ledger.py"
MISSING: Final = "connector/tailrace/retention/missing.py"

FILES: Final = "integration/faults/test_files.py"
SPACE: Final = "integration/faults/test_space.py"
CRASHES: Final = "integration/faults/test_crashes.py"
LIFE: Final = "integration/test_cdc_raw_life.py"
EARLY: Final = "integration/test_early.py"
READING: Final = "unit/capture/test_cdcraw.py"
LOOP: Final = "unit/agent/test_loop.py"

BREAKAGES: Final = (
    Breakage(
        name="one-marker-too-far",
        promise="nothing is published that the index has not released",
        file="connector/tailrace/segments/open_segment.py",
        old=(
            "self._cursor.logical >= released):\n"
            "            return False\n"
            "        section = read_section(descriptor, self._data, self._cursor, self._keys)\n"
            "        self._let_go()\n"
            "        if section is None:\n"
            "            self.ended = True\n"
            "            return False\n"
            "        if released is not None and section.end.logical > released:\n"
            "            return False\n"
        ),
        new=(
            "self._cursor.logical > released):\n"
            "            return False\n"
            "        section = read_section(descriptor, self._data, self._cursor, self._keys)\n"
            "        self._let_go()\n"
            "        if section is None:\n"
            "            self.ended = True\n"
            "            return False\n"
        ),
        needs=Needs.NOTHING,
        reds=(
            Red(READING, "test_only_what_the_index_released", ASSERTED),
            Red(
                "unit/capture/test_recorded.py",
                "test_a_growing_index_releases_section_by_section",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="release-of-what-was-read",
        promise="a segment is released only at or below a committed position",
        file=ENDS,
        old="        ended = (id for id, end in self._finished.items() if end <= position and id <= self._committed)\n",
        new="        ended = (id for id in self._finished if id <= self.read_up_to)\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                READING,
                "test_a_finished_segment_is_released_only_at_or_below_a_committed_position",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="release-without-its-ddl",
        promise="a segment is released only when all of its DDL is read",
        file="connector/tailrace/agent/commits.py",
        old="        upto = min(self._committed, Position(ddl_position.epoch, ddl_position.segment, -1))\n",
        new="        upto = self._committed\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                LOOP,
                "test_a_segment_is_released_only_when_its_ddl_is_known_to_be_read",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="gaps-are-always-unknown",
        promise="a gap that can hold no changes is silent",
        file=MISSING,
        old="                possible = position.segment >= 0 and (self._may_delete() or other_agents)\n",
        new="                possible = position.segment >= 0\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/retention/test_missing.py",
                "test_ids_that_are_missing_are_unknown_only_where_cassandra_deletes_and_nobody_watched",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="nothing-is-retracted",
        promise="what a crash took back of early changes is announced",
        file=CDC_RAW,
        old=(
            "            self._register.retract(Position(self._epoch, segment.id, segment.logical), segment.position)\n"
        ),
        new='            _LOG.warning("segment %d ends before what was published of it", segment.id)\n',
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/capture/test_early.py",
                "test_what_a_crash_took_back_is_announced",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="the-wall-clock-judges-life",
        promise="of a wall clock that jumps only `seen` shows anything",
        file="connector/tailrace/cli/agent.py",
        old="        health = HealthBoard(time.monotonic)\n",
        new="        health = HealthBoard(time.time)\n",
        needs=Needs.NODE,
        session="agent",
        reds=(Red("integration/faults/test_clock.py", "test_a_clock_that_jumps", r"assert states =="),),
    ),
    Breakage(
        name="a-bad-checksum-costs-one-mutation",
        promise="what is damaged is read up to the damage and no further",
        file="connector/tailrace/commitlog/entry.py",
        old=(
            "            payload = frame_payload(data, offset, length, base)\n            offset += length + OVERHEAD\n"
        ),
        new=(
            "            try:\n"
            "                payload = frame_payload(data, offset, length, base)\n"
            "            except Exception:\n"
            "                offset += length + OVERHEAD\n"
            "                continue\n"
            "            offset += length + OVERHEAD\n"
        ),
        needs=Needs.NODE,
        session="agent",
        reds=(Red(FILES, "test_damaged_segments", r"assert named\(\)|len\(named\(\)\) >= len\(good\)"),),
    ),
    Breakage(
        name="damage-is-an-end",
        promise="a damaged segment is quarantined and kept",
        file="connector/tailrace/capture/current.py",
        old="        return index is not None and not index.completed and self.file.logical >= index.offset\n",
        new="        return self.file.position.offset > 0\n",
        needs=Needs.NODE,
        session="agent",
        reds=(Red(FILES, "test_damaged_segments", r"len\(named\(\)\) >= len\(good\)"),),
    ),
    Breakage(
        name="foreign-files-at-each-look",
        promise="files that are none of Cassandra's are reported once",
        file="connector/tailrace/capture/listings.py",
        old="        self._foreign |= new\n",
        new="        self._foreign = new\n",
        needs=Needs.NODE,
        session="agent",
        reds=(Red(FILES, "test_files_that_are_none_of_cassandras", r"path\.name"),),
    ),
    Breakage(
        name="an-old-number-is-an-old-segment",
        promise="a segment of another log is never taken for one that was published",
        file=LEDGER,
        old="            return checksum is not None and checksum == header_checksum(path)\n",
        new="            return checksum is None or checksum == header_checksum(path)\n",
        needs=Needs.NODE,
        session="agent",
        reds=(Red(FILES, "test_an_older_segment_of_another_log", r"ended\(\) == 1"),),
    ),
    Breakage(
        name="released-and-forgotten",
        promise="what the node's replay links again is not taken for another log's",
        file=LEDGER,
        old="        self.released[segment] = self.linked.pop(segment, 0)\n",
        new="        self.linked.pop(segment, 0)\n",
        needs=Needs.NODE,
        session="agent",
        reds=(Red(CRASHES, "test_a_cassandra_that_crashes", r"exit code 1\b"),),
    ),
    Breakage(
        name="a-log-of-few-segments",
        promise="what the node's replay links again is not taken for another log's, at any size of the log",
        file=LEDGER,
        old=(
            "            limit = max(REMEMBERED, self._counted, self.capacity() or 0)\n"
            "            unseen = (segment for segment in sorted(self.released)"
            " if segment < min(self._held, default=segment + 1))\n"
        ),
        new="            limit, unseen = REMEMBERED, sorted(self.released)\n",
        needs=Needs.MORE,
        session="life",
        reds=(Red(CRASHES, "test_a_cassandra_that_crashes_with_hundreds_of_segments", r"exit code 1\b"),),
    ),
    Breakage(
        name="four-segments-are-remembered",
        promise="copies of segments are remembered as far as the log has room",
        file=LEDGER,
        old="REMEMBERED: Final = 256\n",
        new="REMEMBERED: Final = 4\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/retention/test_ledger.py",
                "test_copies_are_remembered_as_far_as_the_log_has_room[None-256]",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="released-and-left",
        promise="released segments make room in a full cdc_raw, and writes go on",
        file="connector/tailrace/assembly/cdc_raw.py",
        old='    return KEPT if settings.on_release == "keep" else DELETED\n',
        new='    return DELETED if settings.on_release == "keep" else KEPT\n',
        needs=Needs.MORE,
        session="full",
        reds=(
            Red(LIFE, "test_a_full_cdc_raw_is_freed_and_writes_go_on", r"> +assert wait_until"),
            Red(SPACE, "test_cdc_raw_that_is_full", r"writes are refused still"),
        ),
    ),
    Breakage(
        name="the-spool-is-not-read-back",
        promise="what waits in the spool is published when Kafka is back",
        file=CANDIDATES,
        old="            if done or id in self._register.left or id in self._ahead.unindexed:\n",
        new="            done |= files.spooled\n"
        "            if done or id in self._register.left or id in self._ahead.unindexed:\n",
        needs=Needs.MORE,
        session="life",
        reds=(Red(LIFE, "test_a_kafka_outage_does_not_stop_writes", r'agent\.count\("changes"\) >= total'),),
    ),
    Breakage(
        name="lost-is-not-told",
        promise="segments that vanished unread are reported, with the exact gap",
        file=MISSING,
        old="                self._add(Missing.LOST, span, position)\n",
        new="                self._reported = united(self._reported, [span])\n",
        needs=Needs.MORE,
        session="deleted",
        reds=(
            Red(LIFE, "test_segments_that_cassandra_deleted_unread_are_reported_once", r'agent\.count\("lost"\) == 1'),
        ),
    ),
    Breakage(
        name="dropped-is-not-told",
        promise="what was dropped unread is reported as loss",
        file=MISSING,
        old="                self._add(Missing.LOST, span, position)\n",
        new="                self._reported = united(self._reported, [span])\n",
        needs=Needs.MORE,
        session="life",
        reds=(Red(LIFE, "test_dropping_the_oldest_is_reported_as_loss", r'agent\.count\("lost"\) > 0'),),
    ),
    Breakage(
        name="told-at-each-commit",
        promise="and once",
        file=MISSING,
        old="            self.losses = tuple(loss for loss in self.losses if loss not in losses)\n",
        new="",
        needs=Needs.MORE,
        session="deleted",
        reds=(
            Red(LIFE, "test_segments_that_cassandra_deleted_unread_are_reported_once", r'agent\.count\("lost"\) == 1'),
        ),
    ),
    Breakage(
        name="half-a-copy-stays",
        promise="a spool that was full is empty again when Kafka goes on",
        file="connector/tailrace/retention/moving.py",
        old="        with suppress(OSError):\n            partial.unlink(missing_ok=True)\n        raise\n",
        new="        raise\n",
        needs=Needs.MORE,
        session="life",
        reds=(Red(SPACE, "test_a_spool_that_is_full", r"\.partial|writes are refused still|not in \d+ s"),),
    ),
    Breakage(
        name="a-log-that-must-be-written",
        promise="changes go on where the agent's own files have no space",
        file="common/tailrace_common/cli/logs.py",
        old='    handler = logging.StreamHandler(stream) if level.lower() == "debug" else _Handler(stream)\n',
        new="    class Handler(logging.StreamHandler[TextIO]):\n"
        "        def handleError(self, record: logging.LogRecord) -> None:\n"
        "            raise\n\n"
        "    handler = Handler(stream)\n",
        needs=Needs.NODE,
        session="agent",
        reds=(Red(SPACE, "test_a_disk_that_is_full", r"> +until_more\(agent, 600\)"),),
    ),
    Breakage(
        name="what-replay-deletes-is-empty",
        promise="changes that replay gives no index are published",
        file="connector/tailrace/capture/recovery.py",
        old="        if files.id not in self.holding or files.index is not None:\n            return False\n",
        new="        if files.id >= 0:\n            return False\n",
        needs=Needs.MORE,
        session="life",
        reds=(Red(CRASHES, "test_tracking_that_ends_right_before_a_crash", r"_are_published"),),
    ),
    Breakage(
        name="deleted-by-others-is-empty",
        promise="segments that somebody else deleted are read from the commit log, or reported by their ids",
        file="connector/tailrace/retention/missing.py",
        old="        self.suspect(files.id for files in pair(index.parent, [index.name]).segments)\n",
        new="        self.suspect(files.id for files in pair(index.parent, [index.name]).segments if index.exists())\n",
        needs=Needs.MORE,
        session="life",
        reds=(Red(FILES, "test_segments_that_somebody_deletes", r"len\(lost\)|== removed|agent\.stop\(\) == 4"),),
    ),
    Breakage(
        name="the-commit-log-is-not-looked-at",
        promise="segments that somebody else deleted while no agent ran are read from the commit log",
        file="connector/tailrace/capture/recovery.py",
        old="        self._looked = True\n",
        new="        self._looked = True\n        return\n",
        needs=Needs.MORE,
        session="life",
        reds=(Red(FILES, "test_segments_that_somebody_deletes", r"Counter\(range\(400\)\)"),),
    ),
    Breakage(
        name="any-header-will-do",
        promise="what is no segment, whatever its name, makes no segment look finished",
        file="connector/tailrace/segments/open_segment.py",
        old="            return read_descriptor(file.read(_HEADER_BYTES)).id == files.id\n",
        new="            return read_descriptor(file.read(_HEADER_BYTES)).id >= 0\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                READING,
                "test_a_file_that_is_no_segment_ends_no_segment[CommitLog-7-99.log-header of another]",
                ASSERTED,
            ),
            Red("unit/retention/test_pressure.py", "test_a_copy_under_a_later_name_makes_no_segment_final", ASSERTED),
        ),
    ),
    Breakage(
        name="an-hour-counts-as-watched",
        promise="ids that are missing are unknown where nobody watched",
        file=MISSING,
        old="UNWATCHED_SECONDS: Final = 3.0\n",
        new="UNWATCHED_SECONDS: Final = 3000.0\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/retention/test_missing.py", "test_three_seconds_without_a_look_are_too_many[4.0-found1]", ASSERTED
            ),
        ),
    ),
    Breakage(
        name="early-is-not-marked",
        promise="what is not flushed is marked",
        file=CDC_RAW,
        old="        return self._ahead.durable(self._at) if self._early else None\n",
        new="        return None\n",
        needs=Needs.MORE,
        session="life",
        reds=(Red(EARLY, "test_early_mode_does_not_wait_for_the_flush", ASSERTED),),
    ),
    Breakage(
        name="early-segments-stay",
        promise="segments that were read ahead of their index go when they have one",
        file=CANDIDATES,
        old="            if id in present and id not in self._register.left:\n                self._ends.add(id)\n",
        new="",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/capture/test_early.py",
                "test_a_segment_is_released_when_its_index_comes_and_never_before[False]",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="a-mistyped-pattern-releases",
        promise="nothing is released while no table with cdc is selected",
        file="connector/tailrace/agent/selecting.py",
        old="        keeping = not fit.selected and not self._release\n",
        new="        keeping = not fit.names and not self._release\n",
        needs=Needs.NODE,
        session="agent",
        reds=(
            Red(
                "integration/faults/test_selection.py",
                "test_a_pattern_that_matches_nothing_loses_nothing",
                r"> +assert wait_until\(parked, 60\)",
            ),
        ),
    ),
)
