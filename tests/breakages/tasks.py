"""Breakages of batches that tasks write: attempts beside each other, plans, drivers, truncations, who writes."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Needs, Red, breakage
from tests.breakages.mutations import argument, constant, drop, replace

CASSANDRA_TASKS: Final = "integration/test_cassandra_tasks.py"
FENCING: Final = "unit/spark/sinks/sql/test_fencing.py"
KAFKA_TASKS: Final = "integration/test_kafka_tasks.py"
SEARCH_TASKS: Final = "unit/spark/sinks/opensearch/test_tasks.py"
SQL_TASKS: Final = "unit/spark/sinks/sql/test_tasks.py"

BREAKAGES: Final = {
    "two-attempts-at-a-partition-write-at-once": breakage(
        "two attempts of Spark at a task leave the rows of one",
        "tailrace_spark.sinks.state_store.fences:begin_partition",
        drop("upsert(...)"),
        Red(SQL_TASKS, "test_two_attempts_at_a_partition_come_out_as_one[postgresql]"),
    ),
    "a-task-writes-after-a-newer-plan": breakage(
        "tasks of an earlier plan write no more",
        "tailrace_spark.sinks.state_store.fences:Fence.require",
        constant("stored == self.token", True),
        Red(
            SQL_TASKS,
            "test_tasks_of_an_earlier_plan_write_nothing_behind_a_newer_one[postgresql]",
            "DID NOT RAISE",
        ),
        Red(
            SQL_TASKS,
            "test_a_batch_of_the_drivers_comes_after_the_tasks_of_the_one_before[postgresql]",
            "DID NOT RAISE",
        ),
    ),
    "a-stopped-writer-overwrites-its-successors-rows": breakage(
        "a writer that was stopped changes no row once its successor has begun",
        "tailrace_spark.sinks.state_store.fences:Claim.require",
        constant("self._fence is not None", False),
        Red(FENCING, "test_a_writer_that_was_stopped_before_it_writes_leaves_its_successors_rows[postgresql-driver]"),
        Red(FENCING, "test_a_writer_with_a_successor_changes_nothing_any_more[sqlite]", "DID NOT RAISE"),
    ),
    "two-drivers-write-one-stream": breakage(
        "of two drivers with one checkpoint the one that planned first ends",
        "tailrace_spark.sinks.state_store.fences:Claim._counted_up",
        constant("token - 1 > self._tried", False),
        Red(SQL_TASKS, "test_of_two_drivers_the_one_that_planned_first_ends[postgresql]", "DID NOT RAISE"),
    ),
    "executors-write-truncations": breakage(
        "no share of a batch has a truncation, which is of the keys of all",
        "tailrace_spark.tasks.partition_writer:without_truncations",
        constant("Op.TRUNCATE", None),
        Red(SQL_TASKS, "test_a_truncation_that_a_task_meets_is_the_drivers[postgresql]", "DID NOT RAISE"),
        Red("unit/spark/tasks/test_partition_writer.py", "test_a_truncation_is_of_the_keys_of_all_shares"),
    ),
    "copies-from-behind-a-truncation-are-left-out": breakage(
        "rows are the same though tasks decode one copy of a change alone",
        "tailrace_spark.source.decode:Copies.add",
        constant("self._truncated(change.table)", False),
        Red("unit/spark/source/test_copies.py", "test_rows_end_as_a_select_of_all_replicas"),
        Red(
            "unit/spark/tasks/test_partition_writer.py",
            "test_a_task_that_makes_rows_is_given_one_copy_and_every_other_one_all",
        ),
    ),
    "a-kafka-task-writes-after-a-newer-plan": breakage(
        "tasks of an earlier plan write no more",
        "tailrace_spark.sinks.kafka.progress:Progress.read_within",
        constant("self.plan != plan", False),
        Red(KAFKA_TASKS, "test_tasks_write_no_more_after_a_newer_plan", "DID NOT RAISE"),
        needs=Needs.KAFKA,
    ),
    "a-kafka-driver-leaves-transactions-of-tasks-open": breakage(
        "a driver's batch comes after the tasks of those before",
        "tailrace_spark.sinks.kafka.shares:KafkaShares.fence",
        argument("threads.map(...)", 0, "str"),
        Red(KAFKA_TASKS, "test_the_driver_takes_over_from_tasks_that_still_write", "DID NOT RAISE"),
        needs=Needs.KAFKA,
    ),
    "a-late-cassandra-task-writes-into-a-table-made-again": breakage(
        "a late task writes nothing into another table of the same name",
        "tailrace_spark.sinks.cassandra.sink_base:CassandraSink.apply",
        constant("self._shares", False),
        Red(CASSANDRA_TASKS, "test_a_late_attempt_writes_nothing_into_a_table_that_was_made_again"),
        needs=Needs.NODE,
    ),
    "a-search-index-takes-what-is-older-than-its-truncation": breakage(
        "what a truncation took does not come back by a writer that had read before it",
        "tailrace_spark.sinks.opensearch.sink:OpensearchSink._follow",
        replace("index.fence", "index.drain"),
        Red(SEARCH_TASKS, "test_what_a_truncation_took_does_not_come_back_by_a_late_attempt_that_dies"),
    ),
    "tasks-letters-of-a-search-sink-are-lost": breakage(
        "tasks lose no dead letter",
        "tailrace_spark.sinks.table_faults:written_by_table",
        drop("letters.put(...)"),
        Red(SEARCH_TASKS, "test_what_the_server_refuses_is_a_letter"),
    ),
    "tasks-of-log-tables-know-only-their-own-definitions": breakage(
        "rows of log tables follow from all definitions of their table, by tasks too",
        "tailrace_spark.sinks.cassandra.log.sink:LogTablesSink.begin",
        constant("plan.definitions != self._known", False),
        Red(
            "unit/spark/sinks/cassandra/log/test_tasks.py",
            "test_tasks_go_by_all_definitions_that_the_driver_knows",
            "HereOnlyError: ALTER TABLE",
        ),
    ),
    "a-task-writes-a-part-of-an-update": breakage(
        "updates are whole wherever batches end, by tasks too",
        "tailrace_spark.tasks.partition_writer:PartitionUpdates.whole",
        replace("updates.waiting", "updates.left_out and updates.waiting"),
        Red("integration/test_task_updates.py", "test_each_update_comes_once_and_whole_wherever_batches_end"),
        needs=Needs.KAFKA,
    ),
    "auto-execution-follows-each-batch": breakage(
        "large batches are written by tasks, small ones by the driver",
        "tailrace_spark.job.progress:ExecutionChoice.choose",
        constant("FEW_BATCHES", 1),
        Red("unit/spark/job/test_progress.py", "test_auto_is_executors_from_a_large_batch_until_several_small_ones"),
    ),
}
