"""Breakages of what the agent says of its services, and to whom: connections, passwords, secrets, the registry."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Needs, Red, breakage
from tests.breakages.mutations import argument, constant, drop, give, insert, replace

SECURITY: Final = "integration/test_security.py"

BREAKAGES: Final = {
    "an-abortable-error-is-retried": breakage(
        "every error of Kafka's is answered; nothing is skipped",
        "tailrace_common.kafka.errors:answer_to",
        drop("abort"),
        Red(
            "unit/common/kafka/test_errors.py",
            "test_no_error_at_all_is_passed_over[_TIMED_OUT]",
            r"is not Answer\.RETRY",
        ),
    ),
    "it-waits-in-silence": breakage(
        "a connection to Cassandra that is refused or silent at the start is said in health",
        "tailrace.assembly.agent:AgentStart._until_done",
        replace("outage.failed(error)", "_LOG.error('%s', error)"),
        Red(
            "integration/test_agent.py",
            "test_an_agent_without_its_node_waits_and_can_be_stopped",
            r'"cluster\.contact_points" in agent\.status\(\)',
        ),
        session="agent",
    ),
    "a-wrong-password-ends-the-agent": breakage(
        "an agent goes on when its passwords are right again, without a restart",
        "tailrace.assembly.agent:AgentStart._until_done",
        insert(
            """
            if 'incorrect' in str(error):
                from tailrace_schemas.errors import SettingsError
                raise SettingsError(f'cluster.password: {error}') from None
            """,
            before="outage.failed(error)",
        ),
        Red(SECURITY, "test_passwords_that_are_wrong_at_the_start_and_change_while_it_runs", r"exit code 2\b"),
        session="security",
    ),
    "kafkas-reason-is-lost": breakage(
        "health says what Kafka refused",
        "tailrace_common.kafka.client:ClientErrors.__call__",
        drop("self.last = redact(error.str())"),
        Red(SECURITY, "test_kafka_refuses[PLAIN-wrong0-Authentication failed]", r"assert re\.search\(says"),
        Red(SECURITY, "test_kafka_refuses[SCRAM-SHA-512-wrong2-certificate verify failed]", r"re\.search\(says"),
        needs=Needs.MORE,
    ),
    "types-that-are-named-by-who-comes-first": breakage(
        "the registry finds each version of a table's schema compatible",
        "tailrace_schemas.avro.schema:_Types._unnamed",
        replace("f'{proposed} {cql_type}'", "str(cql_type)"),
        Red("unit/spark/sinks/kafka/test_avro.py", "test_a_column_that_comes_or_goes_renames_no_type_of_another"),
        Red(
            "unit/schemas/avro/test_messages.py",
            "test_an_alter_leaves_messages_readable_by_the_schema_of_each_other",
            "schema mismatch",
        ),
    ),
    "a-refused-schema-stays-refused-in-the-kafka-sink": breakage(
        "goes on when the rule gives way",
        "tailrace_spark.sinks.kafka.avro:AvroWriters.begin",
        drop("self._refused.clear()"),
        Red("unit/spark/sinks/kafka/test_avro.py", "test_what_is_refused_is_asked_for_once_in_each_batch"),
    ),
    "what-a-registry-refuses-is-left-out": breakage(
        "a table whose schema the registry refuses is set aside with its reason",
        "tailrace_spark.sinks.kafka.outlet:KafkaBatch.put",
        drop("reason = reason_of(error)"),
        Red(
            "integration/test_kafka_avro.py",
            "test_a_table_that_the_registry_refuses_is_set_aside_and_the_others_go_on",
            r"dead_letters=1",
        ),
        needs=Needs.KAFKA,
    ),
    "idle-connections-take-all-descriptors": breakage(
        "clients of the health endpoint take no descriptor that capture needs",
        "tailrace_common.http_server:MOST_CONNECTIONS",
        give("16000"),
        Red(
            "unit/common/test_http_server.py",
            "test_idle_connections_take_no_descriptor_from_the_process",
            r"> +assert (read\(port\)|child\.stdout\.readline)|for _ in range\(IDLE\)",
        ),
    ),
    "a-password-ends-at-a-slash": breakage(
        "no secret in any log, whatever characters it has",
        "tailrace_common.secrets:_URL_PASSWORD",
        argument(
            "re.compile(...)",
            0,
            r"""rf'(?P<head>(?<![\w+.-])[\w+.-]+://[^/\s@:]*:)(?:{_PORT}(?:{_NEXT_URL}[^\n"/])*@)'""",
        ),
        Red("unit/common/test_secrets.py", "test_passwords_with_any_characters[{}-pa/ss]", r"secret not in shown"),
    ),
    "a-node-without-cdc-is-no-problem": breakage(
        "an agent of a node with CDC off is not ready, and says so",
        "tailrace.assembly.node:NodeSettings.cdc_disabled",
        constant("'false'", "off"),
        Red(
            "unit/assembly/test_node.py",
            "test_what_keeps_the_agent_from_its_work_is_told_once_and_until_it_is_mended[node0-cdc_enabled]",
        ),
    ),
}
