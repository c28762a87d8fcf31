"""Breakages of batches that tasks write: attempts beside each other, plans, drivers, truncations, who writes."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import ASSERTED, Breakage, Needs, Red

CASSANDRA_TASKS: Final = "integration/test_cassandra_tasks.py"
FENCES: Final = "spark/tailrace_spark/sinks/state_store/fences.py"
KAFKA_TASKS: Final = "integration/test_kafka_tasks.py"
SEARCH_SINK: Final = "spark/tailrace_spark/sinks/opensearch/sink.py"
SEARCH_TASKS: Final = "unit/spark/sinks/opensearch/test_tasks.py"
SQL_TASKS: Final = "unit/spark/sinks/sql/test_tasks.py"

BREAKAGES: Final = (
    Breakage(
        name="two-attempts-at-a-partition-write-at-once",
        promise="two attempts of Spark at a task leave the rows of one",
        file=FENCES,
        old="    connection.execute(_upsert(connection.dialect.name, row, reached))\n",
        new="    del row, reached\n",
        needs=Needs.NOTHING,
        reds=(Red(SQL_TASKS, "test_two_attempts_at_a_partition_come_out_as_one[postgresql]", ASSERTED),),
    ),
    Breakage(
        name="a-task-writes-after-a-newer-plan",
        promise="tasks of an earlier plan write no more",
        file=FENCES,
        old="    if newest != token:\n",
        new="    if newest is None:\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                SQL_TASKS,
                "test_a_plan_waits_for_tasks_of_the_one_before_and_then_they_write_no_more[postgresql]",
                "DID NOT RAISE",
            ),
            Red(
                SQL_TASKS,
                "test_a_batch_of_the_drivers_comes_after_the_tasks_of_the_one_before[postgresql]",
                "DID NOT RAISE",
            ),
        ),
    ),
    Breakage(
        name="two-drivers-write-one-stream",
        promise="of two drivers with one checkpoint the one that planned first ends",
        file=FENCES,
        old="        if stream == self._stream and stored not in self._own:\n",
        new="        if stream == self._stream and stored is None:\n",
        needs=Needs.NOTHING,
        reds=(Red(SQL_TASKS, "test_of_two_drivers_the_one_that_planned_first_ends[postgresql]", "DID NOT RAISE"),),
    ),
    Breakage(
        name="tasks-truncate-their-partition",
        promise="merging sinks read as SELECT, by tasks too",
        file="spark/tailrace_spark/sinks/sql/task.py",
        old="coalesced(without_truncations(pieces))",
        new="coalesced(pieces)",
        needs=Needs.NOTHING,
        reds=(Red(SQL_TASKS, "test_a_truncation_that_a_task_meets_is_the_drivers[postgresql]", "DID NOT RAISE"),),
    ),
    Breakage(
        name="a-kafka-task-writes-after-a-newer-plan",
        promise="tasks of an earlier plan write no more",
        file="spark/tailrace_spark/sinks/kafka/progress.py",
        old="        if self.plan != plan:\n",
        new="        if self.plan is None:\n",
        needs=Needs.KAFKA,
        reds=(Red(KAFKA_TASKS, "test_tasks_write_no_more_after_a_newer_plan", "DID NOT RAISE"),),
    ),
    Breakage(
        name="a-kafka-driver-leaves-transactions-of-tasks-open",
        promise="a driver's batch comes after the tasks of those before",
        file="spark/tailrace_spark/sinks/kafka/tasks.py",
        old="                list(threads.map(self._fence, sorted(progress.by_tasks)))\n",
        new="                list(threads.map(str, sorted(progress.by_tasks)))\n",
        needs=Needs.KAFKA,
        reds=(Red(KAFKA_TASKS, "test_the_driver_takes_over_from_tasks_that_still_write", "DID NOT RAISE"),),
    ),
    Breakage(
        name="tasks-write-truncations-to-logs",
        promise="no task writes a truncation to a log",
        file="spark/tailrace_spark/sinks/without_truncations.py",
        old="            if delivered.change.op is Op.TRUNCATE:\n",
        new="            if delivered.change.op is None:\n",
        needs=Needs.NOTHING,
        reds=(Red("unit/spark/sinks/http/test_tasks.py", "test_a_truncation_is_the_drivers", "DID NOT RAISE"),),
    ),
    Breakage(
        name="dead-letters-stay-in-their-task",
        promise="tasks lose no dead letter",
        file="spark/tailrace_spark/sinks/changelog/file_dead_letters.py",
        old="        self._store.put(letters_of(results))\n",
        new="        del results[:0]\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/spark/sinks/http/test_tasks.py",
                "test_the_driver_puts_into_the_file_what_tasks_set_aside",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="a-late-cassandra-task-writes-into-a-table-made-again",
        promise="a late task writes nothing into another table of the same name",
        file="spark/tailrace_spark/sinks/cassandra/task.py",
        old="        sink.look_again(piece.changes)\n",
        new="        sink.look_again(())\n",
        needs=Needs.NODE,
        reds=(Red(CASSANDRA_TASKS, "test_a_late_attempt_writes_nothing_into_a_table_that_was_made_again", ASSERTED),),
    ),
    Breakage(
        name="cassandra-tasks-make-tables",
        promise="tables and columns are the driver's to make",
        file="spark/tailrace_spark/sinks/cassandra/task.py",
        old="        raise UnpreparedError(statement)\n",
        new="        super().define(statement)\n",
        needs=Needs.NODE,
        reds=(Red(CASSANDRA_TASKS, "test_tables_and_their_columns_are_the_drivers", "DID NOT RAISE"),),
    ),
    Breakage(
        name="a-search-index-takes-what-is-older-than-its-truncation",
        promise="what a truncation took does not come back by a writer that had read before it",
        file=SEARCH_SINK,
        old="            index.fence()\n",
        new="            index.drain()\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                SEARCH_TASKS,
                "test_what_a_truncation_took_does_not_come_back_by_a_late_attempt_that_dies",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="a-search-index-stays-blocked",
        promise="a truncation that is cut off is brought to its end",
        file=SEARCH_SINK,
        old="            index.drain()  # whoever began that may have died while the index took no writes\n",
        new="            index.require_exists('')\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                SEARCH_TASKS,
                "test_a_truncation_cut_off_at_any_request_is_brought_to_its_end[driver]",
                "cluster_block|blocked by",
            ),
        ),
    ),
    Breakage(
        name="tasks-letters-of-a-search-sink-are-lost",
        promise="tasks lose no dead letter",
        file=SEARCH_SINK,
        old="        self._letters.put(letters_of(results))\n",
        new="        letters_of(results)\n",
        needs=Needs.NOTHING,
        reds=(Red(SEARCH_TASKS, "test_what_the_server_refuses_is_a_letter_of_the_drivers", ASSERTED),),
    ),
    Breakage(
        name="tasks-of-log-tables-know-only-their-own-definitions",
        promise="rows of log tables follow from all definitions of their table, by tasks too",
        file="spark/tailrace_spark/sinks/cassandra/log/sink.py",
        old="        if task.definitions != self._texts:\n",
        new="        if task.definitions is self._texts:\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/spark/sinks/cassandra/log/test_tasks.py",
                "test_tasks_go_by_all_definitions_that_the_driver_knows",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="a-task-writes-a-part-of-an-update",
        promise="updates are whole wherever batches end, by tasks too",
        file="spark/tailrace_spark/tasks/updates.py",
        old="        if updates.waiting:\n",
        new="        if updates.left_out and updates.waiting:\n",
        needs=Needs.KAFKA,
        reds=(
            Red(
                "integration/test_task_updates.py",
                "test_each_update_comes_once_and_whole_wherever_batches_end",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="auto-execution-follows-each-batch",
        promise="large batches are written by tasks, small ones by the driver",
        file="spark/tailrace_spark/job/execution.py",
        old="self._small_batches >= self._batches",
        new="self._small_batches >= 1",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/spark/job/test_execution.py",
                "test_auto_is_executors_from_a_large_batch_until_several_small_ones",
                ASSERTED,
            ),
        ),
    ),
)
