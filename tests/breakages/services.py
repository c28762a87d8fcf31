"""Breakages of what the agent says of its services, and to whom: connections, passwords, secrets, the registry."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import ASSERTED, Breakage, Needs, Red

AGENT: Final = "connector/tailrace/assembly/agent.py"
SECURITY: Final = "integration/test_security.py"
NONE_SHOWN: Final = r"if secret in text\] == \[\]"

BREAKAGES: Final = (
    Breakage(
        name="an-abortable-error-is-retried",
        promise="every error of Kafka's is answered; nothing is skipped",
        file="common/tailrace_common/kafka/errors.py",
        old="    if abort or fatal or answer is Answer.RENEW:\n",
        new="    if fatal or answer is Answer.RENEW:\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/common/kafka/test_errors.py",
                "test_no_error_at_all_is_passed_over[_TIMED_OUT]",
                r"is not Answer\.RETRY",
            ),
        ),
    ),
    Breakage(
        name="it-waits-in-silence",
        promise="a connection to Cassandra that is refused or silent at the start is said in health",
        file=AGENT,
        old="                outage.failed(error)\n",
        new='                _LOG.error("%s", error)\n',
        needs=Needs.NODE,
        session="agent",
        reds=(
            Red("integration/faults/test_connections.py", "test_at_the_start", r'until_degraded\(agent, "service"\)'),
            Red(
                "integration/test_agent.py",
                "test_an_agent_without_its_node_waits_and_can_be_stopped",
                r'"cluster\.contact_points" in agent\.status\(\)',
            ),
        ),
    ),
    Breakage(
        name="passwords-in-the-log",
        promise="no secret in any log",
        file=AGENT,
        old="        cluster = LiveCluster(contact_of(self.settings.cluster), changed, ring_changed)\n",
        new=(
            "        contact = contact_of(self.settings.cluster)\n"
            '        _LOG.debug("connecting as %s/%s", contact.username, contact.password)\n'
            "        cluster = LiveCluster(contact, changed, ring_changed)\n"
        ),
        needs=Needs.MORE,
        session="security",
        reds=(Red(SECURITY, "test_an_agent_with_the_rights_of_the_documentation_and_no_others", NONE_SHOWN),),
    ),
    Breakage(
        name="passwords-in-a-repr",
        promise="no secret in any repr",
        file="common/tailrace_common/properties/passthrough.py",
        old="                properties[target] = SecretStr(read_secret_file(str(value)))\n",
        new="                properties[target] = read_secret_file(str(value))\n",
        needs=Needs.MORE,
        reds=(
            Red(SECURITY, "test_kafka_by[PLAIN]", NONE_SHOWN),
            Red(SECURITY, "test_kafka_by[SCRAM-SHA-512]", NONE_SHOWN),
        ),
    ),
    Breakage(
        name="a-wrong-password-ends-the-agent",
        promise="an agent goes on when its passwords are right again, without a restart",
        file=AGENT,
        old="            except (ServiceError, RingError) as error:\n",
        new=(
            "            except (ServiceError, RingError) as error:\n"
            '                if "incorrect" in str(error):\n'
            '                    raise SettingsError(f"cluster.password: {error}") from None\n'
        ),
        needs=Needs.MORE,
        session="security",
        reds=(
            Red(
                SECURITY,
                "test_passwords_that_are_wrong_at_the_start_and_change_while_it_runs",
                r"exit code 2\b",
            ),
        ),
    ),
    Breakage(
        name="kafkas-reason-is-lost",
        promise="health says what Kafka refused",
        file="common/tailrace_common/kafka/client.py",
        old="            self.last = redact(error.str())\n",
        new='            LOG.debug("%s", redact(error.str()))\n',
        needs=Needs.MORE,
        reds=(
            Red(SECURITY, "test_kafka_refuses[PLAIN-wrong0-Authentication failed]", r"assert re\.search\(says"),
            Red(SECURITY, "test_kafka_refuses[SCRAM-SHA-512-wrong2-certificate verify failed]", r"re\.search\(says"),
        ),
    ),
    Breakage(
        name="cassandras-reason-is-lost",
        promise="health says what Cassandra refused",
        file="connector/tailrace/cluster.py",
        old='    text = redact("; ".join(str(reason) or type(reason).__name__ for reason in reasons))\n',
        new='    text = redact("; ".join(type(reason).__name__ for reason in reasons))\n',
        needs=Needs.MORE,
        reds=(
            Red(SECURITY, "test_cassandra_refuses[wrong0-incorrect]", r"assert re\.search\(says"),
            Red(SECURITY, "test_cassandra_refuses[wrong2-CERTIFICATE_VERIFY_FAILED]", r"assert re\.search\(says"),
        ),
    ),
    Breakage(
        name="what-a-registry-refused-stays-refused",
        promise="what the registry refuses is held until its rule gives way",
        file="connector/tailrace/agent/topics.py",
        old="        if not changed and not (self._refused and self._parts.clock() >= self._next):\n",
        new="        if not changed:\n",
        needs=Needs.NODE,
        session="agent",
        reds=(
            Red(
                "integration/test_registry.py",
                "test_what_breaks_a_rule_is_reported_and_held_until_the_rule_gives_way",
                r"prefix, topic\)\) == 2",
            ),
        ),
    ),
    Breakage(
        name="types-that-are-named-by-who-comes-first",
        promise="the registry finds each version of a table's schema compatible",
        file="schemas/tailrace_schemas/avro/schema.py",
        old='self._once(f"{proposed} {cql_type}" if self._outward else str(cql_type), proposed, fields)',
        new="self._once(str(cql_type), proposed, fields)",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/spark/sinks/kafka/test_avro.py",
                "test_a_column_that_comes_or_goes_renames_no_type_of_another",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="a-refused-schema-stays-refused-in-the-kafka-sink",
        promise="goes on when the rule gives way",
        file="spark/tailrace_spark/sinks/kafka/avro.py",
        old="        self._refused.clear()\n",
        new="        self._refused.update({})\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/spark/sinks/kafka/test_avro.py",
                "test_what_is_refused_is_asked_for_once_in_each_batch",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="what-a-registry-refuses-is-left-out",
        promise="a table whose schema the registry refuses is set aside with its reason",
        file="spark/tailrace_spark/sinks/kafka/outlet.py",
        old="            self.letter(DeadLetter(record.record_id, reason_of(error), record.message))\n",
        new="            assert error\n",
        needs=Needs.KAFKA,
        reds=(
            Red(
                "integration/test_kafka_avro.py",
                "test_a_table_that_the_registry_refuses_is_set_aside_and_the_others_go_on",
                r"dead_letters=1",
            ),
        ),
    ),
    Breakage(
        name="idle-connections-take-all-descriptors",
        promise="clients of the health endpoint take no descriptor that capture needs",
        file="common/tailrace_common/http_server.py",
        old="MOST_CONNECTIONS: Final = 16\n",
        new="MOST_CONNECTIONS: Final = 16_000\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/common/test_http_server.py",
                "test_idle_connections_take_no_descriptor_from_the_process",
                r"> +assert (read\(port\)|child\.stdout\.readline)|for _ in range\(IDLE\)",
            ),
        ),
    ),
    Breakage(
        name="a-password-ends-at-a-slash",
        promise="no secret in any log, whatever characters it has",
        file="common/tailrace_common/secrets.py",
        old=r'''{_PORT}(?:{_NEXT_URL}[^\n"])*@|(?:{_NEXT_URL}\S)*@|{_PORT}(?:{_NEXT_URL}[^\n])*@)"""''' + "\n",
        new=r'''{_PORT}(?:{_NEXT_URL}[^\n"/])*@)"""''' + "\n",
        needs=Needs.NOTHING,
        reds=(
            Red("unit/common/test_secrets.py", "test_passwords_with_any_characters[{}-pa/ss]", r"secret not in shown"),
        ),
    ),
    Breakage(
        name="a-node-without-cdc-is-no-problem",
        promise="an agent of a node with CDC off is not ready, and says so",
        file="connector/tailrace/assembly/node_settings.py",
        old='        return self.values.get("cdc_enabled") == "false"\n',
        new='        return self.values.get("cdc_enabled") == "off"\n',
        needs=Needs.MORE,
        session="agent",
        reds=(
            Red(
                "integration/faults/test_node_settings.py",
                "test_a_node_without_cdc_and_a_role_without_rights",
                r'> +agent\.until\(lambda: degraded\("cdc_enabled"\)',
            ),
        ),
    ),
)
