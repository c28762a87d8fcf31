"""Breakages of delivery: of kills, of Kafka's failures, of fencing, transactions, topics and progress."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import ASSERTED, Breakage, Needs, Red

SESSION: Final = "connector/tailrace/agent/session.py"
COMMITS: Final = "connector/tailrace/agent/commits.py"
PUBLISHER: Final = "connector/tailrace/publish/kafka/publisher.py"
PRODUCER: Final = "common/tailrace_common/kafka/producer.py"
TRANSACTIONS: Final = "common/tailrace_common/kafka/transactions.py"
TOPICS: Final = "connector/tailrace/publish/kafka/topics.py"
PACE: Final = "common/tailrace_common/kafka/pace.py"
READING: Final = "common/tailrace_common/kafka/reader.py"
AGENT: Final = "connector/tailrace/assembly/agent.py"

KILLS: Final = "integration/faults/test_kills.py"
CRASHES: Final = "integration/faults/test_crashes.py"
SLOW: Final = "integration/faults/test_slow_kafka.py"
DELIVERY: Final = "integration/test_delivery.py"
PUBLISHING: Final = "integration/test_publisher.py"
AGENTS: Final = "integration/test_agent.py"
COMMON: Final = "integration/common/kafka/test_reader.py"
PRODUCER_TESTS: Final = "integration/common/kafka/test_producer.py"
NEW_LEADER: Final = "test_a_leader_that_is_new_loses_nothing"

LOST: Final = r"\b[1-9]\d* lost\b"
LOST_OR_LAST: Final = rf"{LOST}|agent\.until\(lambda: self\.is_published\(last\)"
"""The last change may be among the lost ones: then the test waits for it in vain."""
DOUBLED: Final = r"\b[1-9]\d* doubled\b"
FEWER: Final = {"TAILRACE_TEST_KILLS": "6"}
"""Of each long test's kills so many: a bug shows at once, or hardly ever."""
FENCING: Final = "integration/faults/test_fencing.py"

BREAKAGES: Final = (
    Breakage(
        name="a-deleted-topic-is-a-new-one",
        promise="a table's topic that is deleted under the agent is said",
        file="connector/tailrace/publish/kafka/topics.py",
        old="                if name in self._counts:\n",
        new="                if not name:\n",
        needs=Needs.KAFKA,
        reds=(Red("integration/test_publisher.py", "test_a_topic_that_was_deleted_under_the_agent_is_said", ASSERTED),),
    ),
    Breakage(
        name="offsets-outside-the-transaction",
        promise="changes and position are in one transaction",
        file=PUBLISHER,
        old="        self._send(Internal.OFFSETS, self._key, self._signed(resume))\n        producer.end()\n",
        new=(
            "        producer.end()\n        self._send(Internal.OFFSETS, self._key, self._signed(resume))\n"
            "        producer.end()\n"
        ),
        needs=Needs.NODE,
        session="agent",
        reds=(Red(KILLS, "test_at_every_step_of_the_loop_and_at_any_time", DOUBLED),),
    ),
    Breakage(
        name="a-partition-that-does-not-know-us",
        promise="what Kafka refuses is never taken for delivered because it takes what comes next",
        file=PRODUCER,
        old="        partitions = {(record.topic, record.partition) for record in records} - self._known\n",
        new="        partitions: set[tuple[str, int]] = set()\n",
        needs=Needs.KAFKA,
        reds=tuple(Red(PRODUCER_TESTS, f"{NEW_LEADER}[True-{exactly}]", ASSERTED) for exactly in (True, False)),
    ),
    Breakage(
        name="a-first-record-alone-is-not-waited-for",
        promise="what Kafka refuses is never taken for delivered because it takes what comes next",
        file=PRODUCER,
        old="            self.acknowledge()\n            self._known.add(partition)\n",
        new="            self._known.add(partition)\n",
        needs=Needs.KAFKA,
        reds=tuple(Red(PRODUCER_TESTS, f"{NEW_LEADER}[False-{exactly}]", ASSERTED) for exactly in (True, False)),
    ),
    Breakage(
        name="a-partition-knows-us-for-ever",
        promise="a partition that may have forgotten a producer gets one record first again",
        file=PRODUCER,
        old="_KNOWN_SECONDS: Final = 3600.0\n",
        new="_KNOWN_SECONDS: Final = 86_400.0\n",
        needs=Needs.KAFKA,
        reds=(
            Red(
                PRODUCER_TESTS,
                "test_after_two_hours_a_partition_gets_one_record_first_again",
                r"assert not .*overtaken",
            ),
        ),
    ),
    Breakage(
        name="release-before-commit",
        promise="a segment is released after its commit, not when it was handed to the producer",
        file=COMMITS,
        old="        changes = self._transaction.commit(resume, schema.unsent)\n",
        new=(
            "        self._committed, self._committed_ddl = resume.position, resume.schema\n"
            "        capture.committed(done, losses)\n"
            "        if release:\n"
            "            self.release()\n"
            "        changes = self._transaction.commit(resume, schema.unsent)\n"
        ),
        needs=Needs.NODE,
        session="agent",
        reds=(
            Red(KILLS, "test_at_every_step_of_the_loop_and_at_any_time", f"vanished unread: lost is|{LOST}"),
            Red(KILLS, "test_while_catching_up", LOST),
        ),
        environment=FEWER,
    ),
    Breakage(
        name="from-the-segments-beginning",
        promise="a start goes on behind the committed position, inside of a segment too",
        file="connector/tailrace/capture/cdcraw.py",
        old="        start_offset = self._at.offset if id == self._at.segment else 0\n",
        new="        start_offset = 0\n",
        needs=Needs.NODE,
        session="agent",
        reds=(
            Red(KILLS, "test_two_hundred_times", DOUBLED),
            Red("integration/test_early.py", "test_early_changes_come_once_and_their_segments_go", r"Counter\("),
        ),
        environment=FEWER,
    ),
    Breakage(
        name="from-the-segments-beginning-of-32-mib",
        promise="the same in segments of Cassandra's own size",
        file="connector/tailrace/capture/cdcraw.py",
        old="        start_offset = self._at.offset if id == self._at.segment else 0\n",
        new="        start_offset = 0\n",
        needs=Needs.MORE,
        session="life",
        reds=(Red(KILLS, "test_in_one_large_segment", DOUBLED),),
        environment=FEWER,
    ),
    Breakage(
        name="offsets-of-an-open-transaction",
        promise="a start goes on from what was committed, and waits for what may be",
        file=READING,
        old='    "isolation.level": "read_committed",\n',
        new='    "isolation.level": "read_uncommitted",\n',
        needs=Needs.KAFKA,
        reds=(
            Red(COMMON, "test_a_producer_killed_inside_a_transaction_hides_nothing", ASSERTED),
            Red(COMMON, "test_an_open_transaction_is_waited_for_until_it_ends", ASSERTED),
        ),
    ),
    Breakage(
        name="a-reader-that-outlives-its-session",
        promise="after a failure of Kafka's the agent goes on from what Kafka has, not from where it was",
        file=AGENT,
        old="            capture=lambda resume: care.capture(resume, self.keys),\n",
        new=(
            "            capture=lambda resume, kept=[]: kept[0]\n"
            "            if kept\n"
            "            else kept.append(care.capture(resume, self.keys)) or kept[0],\n"
        ),
        needs=Needs.NODE,
        session="agent",
        reds=(
            Red(CRASHES, "test_a_kafka_that_crashes", LOST_OR_LAST),
            Red(CRASHES, "test_a_kafka_that_crashes_again_and_again", LOST_OR_LAST),
            Red(CRASHES, "test_a_kafka_that_stands_still[7]", LOST_OR_LAST),
        ),
    ),
    Breakage(
        name="every-fence-is-another-agent",
        promise="an agent whose transaction Kafka ended is not taken for a second one",
        file=TRANSACTIONS,
        old="    def _fenced(self, doing: str, error: KafkaError) -> Exception:\n",
        new="    def _fenced_(self, doing: str, error: KafkaError) -> Exception:\n",
        needs=Needs.NODE,
        reds=(
            Red(PUBLISHING, "test_a_transaction_that_kafka_ended_is_done_again", r"another producer has started"),
            Red(PUBLISHING, "test_a_fence_without_another_agent_is_none", r"another producer has started"),
            Red(DELIVERY, "test_an_agent_stopped_for_longer_than_its_transaction_goes_on", r"exit code 5"),
        ),
    ),
    Breakage(
        name="each-agent-its-own-transactional-id",
        promise="of two agents for one node the older ends",
        file=PUBLISHER,
        old='            id = f"{prefix}.{host}"\n',
        new='            id = f"{prefix}.{host}.{tenure and tenure.id}"\n',
        needs=Needs.NODE,
        session="agent",
        reds=(Red(FENCING, "test_of_two_agents_for_one_node_the_older_is_fenced", "== 5"),),
    ),
    Breakage(
        name="a-start-fences-whoever-came-meanwhile",
        promise="an older agent that comes back leaves the newer one's place alone",
        file=PUBLISHER,
        old="            if self._tenure.began and self._taken(records):\n",
        new="            if self._tenure.began and self._taken(records[:0]):\n",
        needs=Needs.KAFKA,
        reds=(
            Red(PUBLISHING, "test_another_agent_ends_the_older_one_and_stays", r"DID NOT RAISE"),
            Red(PUBLISHING, "test_who_moves_a_host_by_hand_ends_its_agent", r"DID NOT RAISE"),
        ),
    ),
    Breakage(
        name="lost-marks-are-not-looked-for",
        promise="a transaction of which Kafka lost the marks ends as it ended",
        file=PUBLISHER,
        old=(
            "        if isinstance(self._producer, KafkaTransactions):\n"
            "            self._settle(self._producer, topic)\n"
        ),
        new="",
        needs=Needs.MORE,
        reds=(
            Red(
                "integration/test_lost_marks.py",
                "test_what_was_committed_is_read_and_what_was_not_is_not",
                r"was read up to offset \d+ of \d+, then nothing came",  # what has no mark holds readers up for good
            ),
        ),
    ),
    Breakage(
        name="appends-are-not-waited-for",
        promise="without transactions everything arrives: the position follows what it tells of",
        file="connector/tailrace/publish/kafka/appends.py",
        old="        self.acknowledge()\n",
        new="",
        needs=Needs.KAFKA,
        reds=(Red(PUBLISHING, "test_without_transactions_everything_arrives", ASSERTED),),
    ),
    Breakage(
        name="a-directory-of-many-readers",
        promise="without transactions one agent reads a cdc_raw",
        file="connector/tailrace/capture/owner.py",
        old="        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)\n",
        new="        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)\n",
        needs=Needs.NODE,
        session="agent",
        reds=(
            Red(DELIVERY, "test_without_transactions_a_kill_loses_nothing", r"== 5"),
            Red(FENCING, "test_an_agent_of_another_prefix_deletes_nothing", r"== 5"),
        ),
    ),
    Breakage(
        name="only-a-young-record-is-an-agent",
        promise="an idle agent is noticed before its record is changed by hand",
        file="connector/tailrace/assembly/stopped.py",
        old="    if owner is not None and owner[1]:\n",
        new="    if owner is not None and owner[1] and record.age(now) < _BUSY_SECONDS:\n",
        needs=Needs.NOTHING,
        reds=(
            Red("unit/assembly/test_stopped.py", "test_the_lock_of_cdc_raw_names_an_agent_that_runs", r"DID NOT RAISE"),
        ),
    ),
    Breakage(
        name="a-mark-for-anybody",
        promise="what a stopped agent has not published is not deleted by an agent of another prefix",
        file="connector/tailrace/capture/owner.py",
        old="    if mark is None or mark.owns_as(owner):\n",
        new="    if mark is None or mark.host == owner.host:\n",
        needs=Needs.NODE,
        reds=(
            Red(
                "unit/capture/test_owner.py", "test_what_a_stopped_agent_has_not_published_is_its_own[prefix]", ASSERTED
            ),
            Red(FENCING, "test_an_agent_of_another_prefix_deletes_nothing", r"== 2"),
        ),
    ),
    Breakage(
        name="a-buffer-without-bounds",
        promise="memory is bounded while Kafka takes nothing",
        file="common/tailrace_common/kafka/outgoing.py",
        old='            "queue.buffering.max.kbytes": buffer,\n',
        new='            "queue.buffering.max.kbytes": 1 << 20,\n',
        needs=Needs.KAFKA,
        # The agent's memory does not show it: the bytes of a transaction are bounded too, by 16 MiB.
        reds=(Red(PUBLISHING, "test_a_buffer_that_stays_full_is_said", r"assert 5 <= taken < 15"),),
    ),
    Breakage(
        name="what-was-sent-is-kept",
        promise="memory is bounded while Kafka takes nothing",
        file="connector/tailrace/agent/transaction.py",
        old="            self._tally.add(records)\n",
        new=(
            '            self._tally.add(records)\n            self._sent = [*getattr(self, "_sent", ()), *records]\n'
        ),
        needs=Needs.NODE,
        session="agent",
        reds=(Red(DELIVERY, "test_memory_is_bounded_while_kafka_stands_still[400]", r"MiB when it was ready"),),
    ),
    Breakage(
        name="progress-runs-ahead",
        promise="who has read a host's progress, and then the topics, has every change at or below it",
        file="connector/tailrace/agent/progress.py",
        old="            published,\n",
        new="            Position(published.epoch, published.segment, published.offset + (1 << 16)),\n",
        needs=Needs.NODE,
        session="agent",
        reds=(Red(DELIVERY, "test_progress_never_runs_ahead_of_a_reader", r"<= known"),),
    ),
    Breakage(
        name="compacted-topics-are-taken",
        promise="topics in which changes would be lost are refused",
        file=TOPICS,
        old="plan.problems(existing.get(plan.name, plan.partitions), actual)",
        new="plan.problems(existing.get(plan.name, plan.partitions), dict(plan.settings(1)))",
        needs=Needs.KAFKA,
        reds=(Red(PUBLISHING, "test_a_lost_race_for_a_topic_is_success_unless_it_harms", r"DID NOT RAISE"),),
    ),
    Breakage(
        name="partitions-are-counted-once",
        promise="partitions that change are refused",
        file=TOPICS,
        old="            now = counts.get(topic) or initial\n",
        new="            now = self._counts.get(topic) or counts.get(topic)\n",
        needs=Needs.KAFKA,
        reds=(Red(PUBLISHING, "test_partitions_added_while_it_runs", r"wait_until\(told, 30\)"),),
    ),
    Breakage(
        name="partitions-are-verified-at-the-start-alone",
        promise="the number of partitions is looked at now and then",
        file=PUBLISHER,
        old="        self._verified = self._clock()\n        try:\n",
        new='        self._verified = float("inf")\n        try:\n',
        needs=Needs.KAFKA,
        reds=(Red(PUBLISHING, "test_the_number_of_partitions_is_looked_at_now_and_then", r"DID NOT RAISE"),),
    ),
    Breakage(
        name="any-directory-will-do",
        promise="an agent of a wrong directory fences nobody",
        file=AGENT,
        old="        require_node_directory(self.settings.agent.cdc_raw_directory, node)\n",
        new="        require_node_directory(self.settings.agent.cdc_raw_directory, NodeSettings())\n",
        needs=Needs.NODE,
        session="agent",
        reds=(Red(AGENTS, "test_an_agent_of_a_wrong_directory_fences_nobody", ASSERTED),),
    ),
    Breakage(
        name="partitions-by-the-signed-token",
        promise="the partition is that of the token, over all of its range",
        file="connector/tailrace/publish/routing.py",
        old="            kafka_partition = partition(message.token, route.partitions)\n",
        new="            kafka_partition = partition(abs(message.token), route.partitions)\n",
        needs=Needs.NODE,
        session="agent",
        reds=(Red(AGENTS, "test_every_change_arrives_once_where_its_token_says", r"record\.partition == partition"),),
    ),
    Breakage(
        name="transactions-end-anywhere",
        promise="a mutation is never split over two transactions",
        file=SESSION,
        old="        self._transaction.send(records, done)\n",
        new=(
            "        for record in records:\n"
            "            self._transaction.send_some([record])\n"
            "            if self._transaction.full and record is not records[-1]:\n"
            "                self._commits.commit(release=False)\n"
            "        self._transaction.end_mutation(done)\n"
        ),
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/agent/test_loop.py",
                "test_no_transaction_ends_inside_a_mutation[1-small]",
                "source.index == source",
            ),
        ),
    ),
    Breakage(
        name="what-waits-comes-last",
        promise="what waits for a table is published before its later changes",
        file=SESSION,
        old=("        self._tend_parked(changed)\n"),
        new=("        if not self._entries:\n            self._tend_parked(changed)\n"),
        needs=Needs.NOTHING,
        reds=(
            Red("unit/agent/test_parking.py", "test_what_waits_for_a_table_comes_before_its_later_changes", ASSERTED),
        ),
    ),
    Breakage(
        name="what-a-read-explains-comes-last",
        promise="what waits for a table is published before its later changes, whatever made the definition known",
        file=SESSION,
        old="            self._unpark(self._parking.retry_explained())\n",
        new="",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/agent/test_parking.py",
                "test_a_definition_that_comes_for_another_table_lets_nothing_overtake_what_waits",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="transactions-of-any-size",
        promise="a slow Kafka gets transactions that it can take in their time",
        file=PACE,
        old="        return min(max(size, _LEAST_BYTES), _MOST_BYTES)\n",
        new="        return _MOST_BYTES\n",
        needs=Needs.NODE,
        session="agent",
        reds=(
            Red(
                SLOW, "test_a_backlog_at_a_slow_kafka", "AssertionError: one transaction had all of them|not in [57]0 s"
            ),
            Red(
                SLOW,
                "test_many_rows_come_in_smaller_transactions",
                "AssertionError: one transaction had most of them|not in 200 s",
            ),
        ),
    ),
    Breakage(
        name="no-more-time-for-a-large-mutation",
        promise="one mutation that needs more than a transaction's usual time gets more",
        file=PACE,
        old="        return min(max(self.normal, seconds), self.normal + size // _SLOWEST, self.longest)\n",
        new="        return self.normal\n",
        needs=Needs.MORE,
        session="slow",
        reds=(Red(SLOW, "test_one_batch_of_100_000_rows", "not in 150 s"),),
    ),
    Breakage(
        name="no-stop-while-it-waits",
        promise="an agent ends within seconds of SIGTERM, also inside a transaction that Kafka takes slowly",
        file=PRODUCER,
        old="        elif self._clock() - self._stopped_at > _GRACE_SECONDS:\n",
        new="        elif self._clock() - self._stopped_at > 100 * _GRACE_SECONDS:\n",
        needs=Needs.MORE,
        session="stop",
        reds=(Red(SLOW, "test_mutations_of_the_largest_size", r"assert agent\.stop\(\) == 0|stopped < 8"),),
    ),
    Breakage(
        name="large-mutations-are-held",
        promise="a large mutation is sent while it is decoded",
        file="connector/tailrace/history/decode.py",
        old="LARGE: Final = 256 << 10\n",
        new="LARGE: Final = 256 << 20\n",
        needs=Needs.MORE,
        session="held",
        reds=(Red(SLOW, "test_one_batch_of_100_000_rows", "MiB when it was ready"),),
    ),
)
