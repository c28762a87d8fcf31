"""Breakages of delivery: of kills, of Kafka's failures, of fencing, transactions, topics and progress."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Needs, Red, breakage
from tests.breakages.mutations import argument, constant, drop, give, insert, replace

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

BREAKAGES: Final = {
    "a-deleted-topic-is-a-new-one": breakage(
        "a table's topic that is deleted under the agent is said",
        "tailrace.publish.kafka.topics:KafkaTopics._ensure",
        constant("name in self._counts", False),
        Red("integration/test_publisher.py", "test_a_topic_that_was_deleted_under_the_agent_is_said"),
        needs=Needs.KAFKA,
    ),
    "offsets-outside-the-transaction": breakage(
        "changes and position are in one transaction",
        "tailrace.publish.kafka.publisher:KafkaPublisher.commit",
        insert("producer.end()", before="self._send(Internal.OFFSETS, ...)"),
        Red(KILLS, "test_at_every_step_of_the_loop_and_at_any_time", DOUBLED),
        session="agent",
    ),
    "a-partition-that-does-not-know-us": breakage(
        "what Kafka refuses is never taken for delivered because it takes what comes next",
        "tailrace_common.kafka.producer:KafkaProducer._introduced",
        replace("partitions = ...", "partitions = set()"),
        *(Red(PRODUCER_TESTS, f"{NEW_LEADER}[True-{exactly}]") for exactly in (True, False)),
        needs=Needs.KAFKA,
    ),
    "a-partition-knows-us-for-ever": breakage(
        "a partition that may have forgotten a producer gets one record first again",
        "tailrace_common.kafka.producer:_KNOWN_SECONDS",
        give("86400.0"),
        Red(PRODUCER_TESTS, "test_after_two_hours_a_partition_gets_one_record_first_again", r"assert not .*overtaken"),
        needs=Needs.KAFKA,
    ),
    "release-before-commit": breakage(
        "a segment is released after its commit, not when it was handed to the producer",
        "tailrace.agent.commits:Commits.commit",
        insert(
            """
            self._committed, self._committed_ddl = resume.position, resume.schema
            capture.committed(done, losses)
            if release:
                self.release()
            """,
            before="changes = ...",
        ),
        Red(
            "unit/agent/test_loop.py",
            "test_a_crash_at_any_step_loses_nothing_and_repeats_nothing[release-2]",
            "assert ",
        ),
    ),
    "from-the-segments-beginning": breakage(
        "a start goes on behind the committed position, inside of a segment too",
        "tailrace.capture.cdcraw:CdcRaw._open_next",
        constant("self._at.offset if ... else ...", 0),
        Red(KILLS, "test_sixty_times", DOUBLED),
        Red(KILLS, "test_while_catching_up", DOUBLED),
        Red("integration/test_early.py", "test_early_changes_come_once_and_their_segments_go", r"Counter\("),
        session="agent",
        environment=FEWER,
    ),
    "from-the-segments-beginning-of-32-mib": breakage(
        "the same in segments of Cassandra's own size",
        "tailrace.capture.cdcraw:CdcRaw._open_next",
        constant("self._at.offset if ... else ...", 0),
        Red(KILLS, "test_in_one_large_segment", DOUBLED),
        session="life",
        environment=FEWER,
    ),
    "offsets-of-an-open-transaction": breakage(
        "a start goes on from what was committed, and waits for what may be",
        "tailrace_common.kafka.reader:READING",
        constant("'read_committed'", "read_uncommitted"),
        Red(COMMON, "test_a_producer_killed_inside_a_transaction_hides_nothing"),
        Red(COMMON, "test_an_open_transaction_is_waited_for_until_it_ends"),
        needs=Needs.KAFKA,
    ),
    "a-reader-that-outlives-its-session": breakage(
        "after a failure of Kafka's the agent goes on from what Kafka has, not from where it was",
        "tailrace.assembly.agent:AgentStart._agent",
        replace(
            "lambda resume: care.capture(resume, self.keys)",
            "lambda resume, kept=[]: kept[0] if kept else kept.append(care.capture(resume, self.keys)) or kept[0]",
        ),
        Red(CRASHES, "test_a_kafka_that_crashes_again_and_again", LOST_OR_LAST),
        Red(CRASHES, "test_a_kafka_that_stands_still[7]", LOST_OR_LAST),
        session="agent",
    ),
    "every-fence-is-another-agent": breakage(
        "an agent whose transaction Kafka ended is not taken for a second one",
        "tailrace_common.kafka.transactions:KafkaTransactions._fenced",
        give("super()._fenced(doing, error)"),
        Red(PUBLISHING, "test_a_transaction_that_kafka_ended_is_done_again", r"another producer has started"),
        needs=Needs.KAFKA,
    ),
    "each-agent-its-own-transactional-id": breakage(
        "of two agents for one node the older ends",
        "tailrace.publish.kafka.publisher:KafkaPublisher.__init__",
        replace("f'{prefix}.{host}'", "f'{prefix}.{host}.{tenure and tenure.id}'"),
        Red(FENCING, "test_of_two_agents_for_one_node_the_older_is_fenced", "== 5"),
        session="agent",
    ),
    "a-start-fences-whoever-came-meanwhile": breakage(
        "an older agent that comes back leaves the newer one's place alone",
        "tailrace.publish.kafka.publisher:KafkaPublisher.start",
        argument("self._taken(records)", 0, "records[:0]"),
        Red(PUBLISHING, "test_another_agent_ends_the_older_one_and_stays", r"DID NOT RAISE"),
        Red(PUBLISHING, "test_who_moves_a_host_by_hand_ends_its_agent", r"DID NOT RAISE"),
        needs=Needs.KAFKA,
    ),
    "lost-marks-are-not-looked-for": breakage(
        "a transaction of which Kafka lost the marks ends as it ended",
        "tailrace.publish.kafka.publisher:KafkaPublisher.start",
        drop("if isinstance(self._producer, KafkaTransactions): ..."),
        Red(
            "integration/test_lost_marks.py",
            "test_what_was_committed_is_read_and_what_was_not_is_not",
            r"was read up to offset \d+ of \d+, then nothing came",  # what has no mark holds readers up for good
        ),
        needs=Needs.MORE,
    ),
    "appends-are-not-waited-for": breakage(
        "without transactions everything arrives: the position follows what it tells of",
        "tailrace_common.kafka.transactions:KafkaAppends.settle",
        drop("self.acknowledge()"),
        Red(PUBLISHING, "test_without_transactions_everything_arrives"),
        needs=Needs.KAFKA,
    ),
    "a-directory-of-many-readers": breakage(
        "without transactions one agent reads a cdc_raw",
        "tailrace.capture.owner:own",
        constant("lock_soon(...)", True),
        Red(DELIVERY, "test_without_transactions_a_kill_loses_nothing", r"== 5"),
        Red(FENCING, "test_an_agent_of_another_prefix_deletes_nothing", r"== 5"),
        session="agent",
    ),
    "only-a-young-record-is-an-agent": breakage(
        "an idle agent is noticed before its record is changed by hand",
        "tailrace.cli.support.records:require_stopped",
        replace(
            "owner is not None and owner[1]", "owner is not None and owner[1] and (record.age(now) < _BUSY_SECONDS)"
        ),
        Red(
            "unit/cli/support/test_records.py",
            "test_the_lock_of_cdc_raw_names_an_agent_that_runs",
            r"DID NOT RAISE",
        ),
    ),
    "a-mark-for-anybody": breakage(
        "what a stopped agent has not published is not deleted by an agent of another prefix",
        "tailrace.capture.owner:_previous",
        replace("mark.owns_as(owner)", "mark.host == owner.host"),
        Red("unit/capture/test_owner.py", "test_what_a_stopped_agent_has_not_published_is_its_own[prefix]"),
        Red(FENCING, "test_an_agent_of_another_prefix_deletes_nothing", r"== 2"),
        needs=Needs.NODE,
    ),
    "a-buffer-without-bounds": breakage(
        "memory is bounded while Kafka takes nothing",
        "tailrace_common.kafka.outgoing:Sizes.settings",
        insert("buffer = 1 << 20", before="return ..."),
        # The agent's memory does not show it: the bytes of a transaction are bounded too, by 16 MiB.
        Red(PUBLISHING, "test_a_buffer_that_stays_full_is_said", r"assert 5 <= taken < 15"),
        needs=Needs.KAFKA,
    ),
    "what-was-sent-is-kept": breakage(
        "memory is bounded while Kafka takes nothing",
        "tailrace.agent.commits:Transaction.send_some",
        insert(
            "self._sent = [*getattr(self, '_sent', ()), *records]",
            before="self._tally.add(records)",
        ),
        Red(DELIVERY, "test_memory_is_bounded_while_kafka_stands_still", r"MiB when it was ready"),
        session="agent",
    ),
    "progress-runs-ahead": breakage(
        "who has read a host's progress, and then the topics, has every change at or below it",
        "tailrace.agent.notes:ProgressNotes.record",
        argument("Progress(...)", 2, "Position(published.epoch, published.segment, published.offset + (1 << 16))"),
        Red(DELIVERY, "test_progress_never_runs_ahead_of_a_reader", r"<= known"),
        session="agent",
    ),
    "compacted-topics-are-taken": breakage(
        "topics in which changes would be lost are refused",
        "tailrace.publish.kafka.topics:KafkaTopics._verify",
        argument("plan.problems(...)", 1, "dict(plan.settings(1))"),
        Red(PUBLISHING, "test_a_lost_race_for_a_topic_is_success_unless_it_harms", r"DID NOT RAISE"),
        needs=Needs.KAFKA,
    ),
    "partitions-are-counted-once": breakage(
        "partitions that change are refused",
        "tailrace.publish.kafka.topics:KafkaTopics.require_unchanged",
        replace("counts.get(topic) or initial", "self._counts.get(topic) or counts.get(topic)"),
        Red(PUBLISHING, "test_partitions_added_while_it_runs", r"DID NOT RAISE"),
        needs=Needs.KAFKA,
    ),
    "partitions-are-verified-at-the-start-alone": breakage(
        "the number of partitions is looked at now and then",
        "tailrace.publish.kafka.publisher:KafkaPublisher._verify_at_times",
        replace("self._verified = self._clock()", "self._verified = float('inf')"),
        Red(PUBLISHING, "test_the_number_of_partitions_is_looked_at_now_and_then", r"DID NOT RAISE"),
        needs=Needs.KAFKA,
    ),
    "any-directory-will-do": breakage(
        "an agent of a wrong directory fences nobody",
        "tailrace.assembly.agent:AgentStart._require_directory",
        argument("require_node_directory(...)", 1, "NodeSettings()"),
        Red(AGENTS, "test_an_agent_of_a_wrong_directory_fences_nobody"),
        session="agent",
    ),
    "partitions-by-the-signed-token": breakage(
        "the partition is that of the token, over all of its range",
        "tailrace.publish.routing:Router.records",
        argument("partition(...)", 0, "abs(message.token)"),
        Red(AGENTS, "test_every_change_arrives_once_where_its_token_says", r"record\.partition == partition"),
        session="agent",
    ),
    "transactions-end-anywhere": breakage(
        "a mutation is never split over two transactions",
        "tailrace.agent.loop:Session._publish_plain",
        replace(
            "self._transaction.send(records, done)",
            """
            for record in records:
                self._transaction.send_some([record])
                if self._transaction.full and record is not records[-1]:
                    self._commits.commit(release=False)
            self._transaction.end_mutation(done)
            """,
        ),
        Red("unit/agent/test_loop.py", "test_no_transaction_ends_inside_a_mutation[1-small]", "source.index == source"),
    ),
    "what-waits-comes-last": breakage(
        "what waits for a table is published before its later changes",
        "tailrace.agent.loop:Session._look_again",
        replace("self._tend_parked(changed)", "self._entries or self._tend_parked(changed)"),
        Red(
            "unit/agent/test_parking.py",
            "test_what_ddl_explains_comes_before_the_later_changes_that_stand_behind_that",
        ),
    ),
    "what-a-read-explains-comes-last": breakage(
        "what waits for a table is published before its later changes, whatever made the definition known",
        "tailrace.agent.loop:Session._publish_next",
        drop("self._unpark(...)"),
        Red(
            "unit/agent/test_parking.py",
            "test_of_two_mutations_with_a_new_column_the_one_that_waits_goes_first",
        ),
    ),
    "transactions-of-any-size": breakage(
        "a slow Kafka gets transactions that it can take in their time",
        "tailrace_common.kafka.pace:Pace._bounded",
        give("_MOST_BYTES"),
        Red(SLOW, "test_a_backlog_at_a_slow_kafka", r"AssertionError: one transaction had all of them|not in \d+ s"),
        session="agent",
    ),
    "no-more-time-for-a-large-mutation": breakage(
        "one mutation that needs more than a transaction's usual time gets more",
        "tailrace_common.kafka.pace:Pace.needed",
        give("self.normal"),
        Red(SLOW, "test_mutations_of_the_largest_size", r"changes\"\) >= 150, 180\): not in"),
        session="slow",
    ),
    "no-stop-while-it-waits": breakage(
        "an agent ends within seconds of SIGTERM, also inside a transaction that Kafka takes slowly",
        "tailrace_common.kafka.producer:KafkaProducer.wait_on",
        replace("_GRACE_SECONDS", "100 * _GRACE_SECONDS"),
        Red("unit/common/kafka/test_producer.py", "test_who_is_told_to_stop_waits_for_kafka_a_moment_longer"),
    ),
    "large-mutations-are-held": breakage(
        "a large mutation is sent while it is decoded",
        "tailrace.history.decode:LARGE",
        give("256 << 20"),
        Red(SLOW, "test_one_batch_of_100_000_rows", "MiB when it was ready"),
        session="held",
    ),
}
