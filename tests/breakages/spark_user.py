"""Breakages of what Spark's users rely on: their settings hold, their sessions stay theirs, secrets stay hidden."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import ASSERTED, Breakage, Needs, Red

SETTINGS: Final = "spark/tailrace_spark/job/spark_settings.py"
SETTINGS_TEST: Final = "unit/spark/job/test_spark_settings.py"
SESSION_TEST: Final = "integration/test_spark_session.py"

BREAKAGES: Final = (
    Breakage(
        name="ours-win-over-the-callers",
        promise="nothing of ours overrides what the caller set",
        file=SETTINGS,
        old="for name, value in _DEFAULTS.items() if name not in user_settings}",
        new="for name, value in _DEFAULTS.items()}",
        needs=Needs.NOTHING,
        reds=(Red(SETTINGS_TEST, "test_ours_fill_only_what_the_caller_left_open", ASSERTED),),
    ),
    Breakage(
        name="redaction-of-the-caller-is-replaced",
        promise="redaction is only ever widened",
        file=SETTINGS,
        old="widened(user_settings.get(REDACTION), NAMES)",
        new="NAMES",
        needs=Needs.NOTHING,
        reds=(Red(SETTINGS_TEST, "test_hidden_names_are_theirs_and_ours", ASSERTED),),
    ),
    Breakage(
        name="a-running-session-takes-our-settings",
        promise="a session that runs already stays as it is",
        file="spark/tailrace_spark/source/kafka.py",
        old="    widen_redaction(spark)\n",
        new='    widen_redaction(spark)\n    spark.conf.set("spark.sql.session.timeZone", "UTC+1")\n',
        needs=Needs.KAFKA,
        reds=(Red(SESSION_TEST, "test_changes_leaves_a_session_as_it_is", ASSERTED),),
    ),
    Breakage(
        name="plans-show-passwords",
        promise="secrets of Kafka are in no plan",
        file="spark/tailrace_spark/source/kafka.py",
        old="    widen_redaction(spark)\n",
        new="",
        needs=Needs.KAFKA,
        reds=(Red(SESSION_TEST, "test_changes_leaves_a_session_as_it_is", ASSERTED),),
    ),
    Breakage(
        name="merged-forgets-what-was-stored",
        promise="merged rows are those that SELECT returns, however changes are cut",
        file="spark/tailrace_spark/tasks/merged_group.py",
        old="        rows.pop(row_key, None)\n    for row in result.stored:\n",
        new="        rows.pop(row_key, None)\n    for row in result.stored[1:]:\n",
        needs=Needs.NOTHING,
        reds=(
            Red("unit/spark/tasks/test_merged_group.py", "test_rows_are_those_of_select", ASSERTED),
            Red(
                "unit/spark/tasks/test_merged_group.py",
                "test_they_are_the_same_however_changes_are_cut_repeated_and_ordered[0]",
                ASSERTED,
            ),
        ),
    ),
)
