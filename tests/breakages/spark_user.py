"""Breakages of what Spark's users rely on: their settings hold, their sessions stay theirs, secrets stay hidden."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Needs, Red, breakage
from tests.breakages.mutations import drop, insert, replace, unwrap

SETTINGS_TEST: Final = "unit/spark/job/test_session.py"
SESSION_TEST: Final = "integration/test_spark_session.py"

BREAKAGES: Final = {
    "ours-win-over-the-callers": breakage(
        "nothing of ours overrides what the caller set",
        "tailrace_spark.job.session:filled",
        drop("name not in user_settings"),
        Red(SETTINGS_TEST, "test_ours_fill_only_what_the_caller_left_open"),
    ),
    "redaction-of-the-caller-is-replaced": breakage(
        "redaction is only ever widened",
        "tailrace_spark.job.session:filled",
        unwrap("widened(...)", "NAMES"),
        Red(SETTINGS_TEST, "test_hidden_names_are_theirs_and_ours"),
    ),
    "a-running-session-takes-our-settings": breakage(
        "a session that runs already stays as it is",
        "tailrace_spark.source.kafka:read_messages",
        insert("spark.conf.set('spark.sql.session.timeZone', 'UTC+1')", before="stream = settings.stream"),
        Red(SESSION_TEST, "test_changes_leaves_a_session_as_it_is"),
        needs=Needs.KAFKA,
    ),
    "plans-show-passwords": breakage(
        "secrets of Kafka are in no plan",
        "tailrace_spark.source.kafka:read_messages",
        drop("widen_redaction(spark)"),
        Red(SESSION_TEST, "test_changes_leaves_a_session_as_it_is"),
        needs=Needs.KAFKA,
    ),
    "merged-forgets-what-was-stored": breakage(
        "merged rows are those that SELECT returns, however changes are cut",
        "tailrace_spark.tasks.merged:_state",
        replace("result.stored", "result.stored[1:]"),
        Red("unit/spark/tasks/test_merged.py", "test_rows_are_those_of_select"),
        Red(
            "unit/spark/tasks/test_merged.py",
            "test_they_are_the_same_however_changes_are_cut_repeated_and_ordered[0]",
        ),
    ),
}
