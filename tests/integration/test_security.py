"""Services that demand credentials, a user without rights of its own, and no secret in anything that is printed."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from secrets import token_hex
from string import Template
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __all__ forgets them
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tailrace.cluster import LiveCluster
from tailrace.publish.kafka import KafkaLog, KafkaPublisher, KafkaTopics
from tailrace.publish.record import Record
from tailrace.state import Resume
from tailrace_common.kafka import RecordFetcher, read_to_end
from tailrace_common.settings import Settings, load_settings
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table
from tailrace_schemas.topics import Internal, internal_topic
from tailrace_spark.source.kafka_options import java_options
from tests.integration import unprivileged
from tests.integration.agents import AgentProcess, ints, published
from tests.integration.feed import Feed
from tests.services.certificates import Authority, Issued
from tests.services.secured import SecuredCassandra, SecuredKafka
from tests.support.waiting import until
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIRROR: Final = "mirror"
PAGE: Final = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
AGENT: Final = "tailrace"
STREAM: Final = "tailrace-stream"
# Nobody's: not in /etc/passwd, owner of nothing but what the test gives it.
USER: Final = 61_234
GROUP: Final = 61_235
ROW_BYTES: Final = 60_000

Environment = dict[str, str]


@dataclass(frozen=True, slots=True)
class Guarded:
    """The services, who may enter them, and files with what they demand, which the agent's user alone may read."""

    kafka: SecuredKafka
    cassandra: SecuredCassandra
    place: Path
    passwords: Mapping[str, str]
    client: Issued
    stranger: Issued

    @property
    def secrets(self) -> list[str]:
        """What must be printed nowhere: passwords, and of keys each line but the frame."""
        keys = (self.client.key + self.stranger.key).splitlines()
        return [*self.passwords.values(), *(line for line in keys if line and not line.startswith("-"))]

    def kafka_environment(self, how: str) -> Environment:
        """The variables of [kafka] for a way in: PLAIN, SCRAM-SHA-512, or mutual."""
        ca = {"TAILRACE_KAFKA__SSL_CA_LOCATION": str(self.place / "ca.pem")}
        if how == "mutual":
            return {
                **ca,
                "TAILRACE_KAFKA__BOOTSTRAP_SERVERS": self.kafka.doors.mutual,
                "TAILRACE_KAFKA__SECURITY_PROTOCOL": "SSL",
                "TAILRACE_KAFKA__SSL_CERTIFICATE_LOCATION": str(self.place / "client.pem"),
                "TAILRACE_KAFKA__SSL_KEY_LOCATION": str(self.place / "client.key"),
                "TAILRACE_KAFKA__SSL_KEY_PASSWORD_FILE": str(self.place / "key"),
            }
        return {
            **ca,
            "TAILRACE_KAFKA__BOOTSTRAP_SERVERS": self.kafka.doors.login,
            "TAILRACE_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
            "TAILRACE_KAFKA__SASL_MECHANISM": how,
            "TAILRACE_KAFKA__SASL_USERNAME": AGENT,
            "TAILRACE_KAFKA__SASL_PASSWORD_FILE": str(self.place / AGENT),
        }

    @property
    def cluster_environment(self) -> Environment:
        """The variables of [cluster]."""
        return {
            "TAILRACE_CLUSTER__CONTACT_POINTS": self.cassandra.node.address,
            "TAILRACE_CLUSTER__PORT": str(self.cassandra.node.port),
            "TAILRACE_CLUSTER__CONNECT_TIMEOUT_SECONDS": "5",
            "TAILRACE_CLUSTER__USERNAME": AGENT,
            "TAILRACE_CLUSTER__PASSWORD_FILE": str(self.place / AGENT),
            "TAILRACE_CLUSTER__TLS": "true",
            "TAILRACE_CLUSTER__TLS_CA_FILE": str(self.place / "ca.pem"),
            "TAILRACE_CLUSTER__TLS_CERTIFICATE_FILE": str(self.place / "client.pem"),
            "TAILRACE_CLUSTER__TLS_KEY_FILE": str(self.place / "client.key"),
            "TAILRACE_CLUSTER__TLS_KEY_PASSWORD_FILE": str(self.place / "key"),
        }


def rights(user: str, prefix: str) -> list[AclBinding]:
    """What docs/security.md grants a user: each kafka-acls.sh of it as the bindings that it makes."""
    found = []
    for line in Template(PAGE).safe_substitute(PREFIX=prefix).splitlines():
        words = shlex.split(line) if line.startswith("kafka-acls.sh") else []
        given: dict[str, list[str]] = {}
        for name, value in pairwise(words):
            given.setdefault(name, []).append(value)
        if given.get("--allow-principal") != [f"User:{user}"]:
            continue
        kind = ResourceType.TOPIC if "--topic" in given else ResourceType.TRANSACTIONAL_ID
        (name,) = given["--topic" if "--topic" in given else "--transactional-id"]
        pattern = ResourcePatternType[given["--resource-pattern-type"][0].upper()]
        found += [
            AclBinding(kind, name, pattern, f"User:{user}", "*", AclOperation[one.upper()], AclPermissionType.ALLOW)
            for one in given["--operation"]
        ]
    return found


def grants(password: str) -> list[str]:
    """The statements of docs/security.md for Cassandra."""
    blocks = Template("".join(re.findall(r"^```cql\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)))
    return [one.strip() for one in blocks.substitute(PASSWORD=password, MIRROR=MIRROR).split(";") if one.strip()]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    """Both services, below a folder that every user may enter; pytest's own are the owner's alone."""
    authority = Authority()
    passwords = {name: token_hex(12) for name in (AGENT, STREAM, "key")}
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tailrace-security-")))
        place.chmod(0o755)
        client, stranger = authority.issue(AGENT, passwords["key"]), Authority().issue(AGENT)
        users = {user: passwords[user] for user in (AGENT, STREAM)}
        kafka = SecuredKafka(place / "kafka", authority, users)
        cassandra = SecuredCassandra(place / "cassandra", authority)
        hand_on_to_group(cassandra.node.commitlog, 0o2750)
        hand_on_to_group(cassandra.node.cdc_raw, 0o2770)
        files = {"ca.pem": authority.certificate, "other-ca.pem": Authority().certificate}
        files |= {"client.pem": client.certificate, "client.key": client.key, **passwords}
        for name, text in files.items():
            write_secret(place / name, text)
        before = os.umask(0o027)
        try:
            with ThreadPoolExecutor(2) as pool:
                starting = [pool.submit(stack.enter_context, service) for service in (kafka, cassandra.node)]
            for future in starting:
                future.result()
        finally:
            os.umask(before)
        found = Guarded(kafka, cassandra, place, passwords, client, stranger)
        with superuser(found) as cluster:
            for statement in grants(passwords[AGENT]):
                cluster.execute(statement)
        yield found


def hand_on_to_group(directory: Path, mode: int) -> None:
    directory.mkdir(parents=True)
    if os.getuid() == 0:
        os.chown(directory, 0, GROUP)
    directory.chmod(mode)


def write_secret(path: Path, text: str) -> None:
    path.touch(mode=0o400)
    path.write_text(f"{text}\n")
    if os.getuid() == 0:
        os.chown(path, USER, GROUP)


def superuser(guarded: Guarded) -> closing[LiveCluster]:
    """A connection that may do everything."""
    own = {"TAILRACE_CLUSTER__USERNAME": "cassandra", "TAILRACE_CLUSTER__PASSWORD": "cassandra"}
    environment = {**guarded.cluster_environment, **own}
    del environment["TAILRACE_CLUSTER__PASSWORD_FILE"]
    return closing(LiveCluster(load_settings(None, environment).cluster))


def assert_no_secret(text: str, guarded: Guarded) -> None:
    assert [secret for secret in guarded.secrets if secret in text] == []


# -- the ways in


@pytest.mark.parametrize("how", ["PLAIN", "SCRAM-SHA-512", "mutual"])
def test_kafka_by(how: str, guarded: Guarded, prefix: str) -> None:
    guarded.kafka.allow(rights(AGENT, prefix))
    settings = load_settings(None, {**guarded.kafka_environment(how), "TAILRACE_TOPICS__PREFIX": prefix})
    assert_no_secret(repr(settings) + str(settings) + settings.model_dump_json(), guarded)
    eventually(lambda: publish(settings))
    records = list(read_to_end(settings.kafka.reveal(), f"{prefix}.shop.orders", 0))
    assert records[-1].value == b"value"
    with RecordFetcher(settings.kafka.reveal()) as fetcher:
        assert fetcher.value(f"{prefix}.shop.orders", 0, records[-1].offset) == b"value"


def publish(settings: Settings) -> None:
    """What an agent does with Kafka, from the first to the last."""
    config, prefix = settings.kafka.reveal(), settings.topics.prefix
    topics = KafkaTopics(config, settings.topics, timeout=5)
    topics.ensure_internal((Internal.OFFSETS, Internal.SCHEMAS))
    topics.ensure_table(f"{prefix}.shop.orders")
    topics.ensure_table(f"{prefix}.shop.t{uuid4().hex}")
    KafkaLog(config, internal_topic(prefix, Internal.SCHEMAS), timeout=5).append(b"key", b"value")
    host = str(uuid4())
    publisher = KafkaPublisher(config, prefix=prefix, cluster="c", host=host, clock=time.monotonic, timeout=5)
    with closing(publisher):
        assert publisher.start() == Resume()
        publisher.send(Record(f"{prefix}.shop.orders", 0, None, b"value"))
        publisher.commit(Resume(Position(1, 1, 1)))


def eventually(action: Callable[[], object]) -> None:
    """Do it until it succeeds: a broker learns of a permission later, and a node changes a password now and then."""
    errors: list[ServiceError] = []

    def succeeds() -> bool:
        try:
            action()
        except ServiceError as error:
            errors.append(error)
            return False
        return True

    until(succeeds, f"success of {action}", state=lambda: errors[-1])


@pytest.mark.promise("agent.wrong-passwords")
@pytest.mark.parametrize(
    ("how", "wrong", "says"),
    [
        ("PLAIN", {"SASL_PASSWORD": "wrong-one"}, "Authentication failed"),
        ("SCRAM-SHA-512", {"SASL_PASSWORD": "wrong-one"}, "Authentication failed"),
        ("SCRAM-SHA-512", {"SSL_CA_LOCATION": "other-ca.pem"}, "certificate verify failed"),
        (
            "mutual",
            {"SSL_CERTIFICATE_LOCATION": None, "SSL_KEY_LOCATION": None},
            "(bad certificate|certificate required)",
        ),
        ("PLAIN", {"SECURITY_PROTOCOL": "PLAINTEXT"}, "security.protocol"),
    ],
)
def test_kafka_refuses(how: str, wrong: Mapping[str, str | None], says: str, guarded: Guarded) -> None:
    settings = load_settings(None, changed(guarded.kafka_environment(how), "TAILRACE_KAFKA__", wrong, guarded))
    with pytest.raises(ServiceError) as caught:
        KafkaTopics(settings.kafka.reveal(), settings.topics, timeout=2).survey()
    assert re.search(says, str(caught.value)), caught.value
    assert_no_secret(str(caught.value) + repr(caught.value), guarded)
    assert "wrong-one" not in str(caught.value)


def changed(given: Environment, head: str, wrong: Mapping[str, str | None], guarded: Guarded) -> Environment:
    """The variables with some of them wrong: names of files in `place`, or values; None takes a variable away."""
    environment = dict(given)
    for name, value in wrong.items():
        environment.pop(f"{head}{name}_FILE", None)
        environment.pop(f"{head}{name}", None)
        if value is not None:
            file = guarded.place / value
            environment[head + name] = str(file) if file.is_file() else value
    return environment


@pytest.mark.promise("agent.wrong-passwords")
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"PASSWORD": "wrong-one"}, "incorrect"),
        ({"USERNAME": None, "PASSWORD": None}, "auth"),
        ({"TLS_CA_FILE": "other-ca.pem"}, "CERTIFICATE_VERIFY_FAILED"),
        (
            {"TLS_CERTIFICATE_FILE": None, "TLS_KEY_FILE": None, "TLS_KEY_PASSWORD": None},
            "(?i)certificate|closed|EOF|reset",
        ),
    ],
)
def test_cassandra_refuses(wrong: Mapping[str, str | None], says: str, guarded: Guarded) -> None:
    environment = changed(guarded.cluster_environment, "TAILRACE_CLUSTER__", wrong, guarded)
    with pytest.raises(ServiceError) as caught:
        LiveCluster(load_settings(None, environment).cluster).close()
    assert re.search(says, str(caught.value)), caught.value
    assert_no_secret(str(caught.value) + repr(caught.value), guarded)
    assert "wrong-one" not in str(caught.value)


# -- the agent


def test_an_agent_with_the_rights_of_the_documentation_and_no_others(
    guarded: Guarded, keyspace_name: str, prefix: str
) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    keyspace = keyspace_name
    guarded.kafka.allow(rights(AGENT, prefix))
    with superuser(guarded) as cluster:
        cluster.execute(
            f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
        cluster.execute(f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY, v blob) WITH cdc = true")
    settings = load_settings(None, {**guarded.cluster_environment, **guarded.kafka_environment("SCRAM-SHA-512")})
    program = (str(Path(unprivileged.__file__)), str(USER), str(GROUP))
    mirror: dict[str, object] = {"keyspace": MIRROR}
    told = {**sections(guarded, settings, keyspace, prefix), "mirror": mirror}
    agent = AgentProcess(guarded.place, told, program=program)
    with agent:
        agent.until_ready()
        agent.until(lambda: agent.status().get("gauges", {}).get("mirrored_generations") == 1)
        status = Path(f"/proc/{agent.process.pid}/status").read_text()
        assert f"Uid:\t{USER}\t{USER}\t{USER}\t{USER}\n" in status
        assert f"Gid:\t{GROUP}\t{GROUP}\t{GROUP}\t{GROUP}\n" in status
        assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE), "no right of root's is left"
        with superuser(guarded) as cluster:
            for key in range(40):
                cluster.execute(f"INSERT INTO {keyspace}.t (k, v) VALUES ({key}, 0x{token_hex(ROW_BYTES)})")
        agent.until(lambda: agent.count("changes") >= 40 and agent.count("released") >= 1)
        check = checked(program, guarded.place / "agent.toml")
        printed = json.dumps(agent.status()) + check.stdout + check.stderr + process_list()
        assert agent.stop() == 0, agent.words()
    found = {one["name"]: one["ok"] for one in map(json.loads, check.stdout.splitlines())}
    wanted = {"cdc_raw_directory", "cassandra", "cdc_enabled", "tables", "kafka"}
    assert {name for name in wanted if not found.get(name)} == set(), check.stdout
    assert ints(published(guarded.kafka.broker, prefix, f"{prefix}.{keyspace}.t")) == dict.fromkeys(range(40), 1)
    assert_no_secret(printed + agent.log.read_text(), guarded)


def sections(guarded: Guarded, settings: Settings, keyspace: str, prefix: str) -> dict[str, dict[str, object]]:
    """The agent's settings as a file: secrets by the files that hold them."""
    cluster = settings.cluster.model_dump(mode="json", exclude_none=True)
    for name in ("password", "tls_key_password"):
        del cluster[name]
    kafka = {name: value for name, value in settings.kafka.reveal().items() if name != "sasl.password"}
    return {
        "cluster": cluster,
        "agent": {"cdc_raw_directory": str(guarded.cassandra.node.cdc_raw), "poll_seconds": 0.2},
        "kafka": {**kafka, "sasl.password_file": str(guarded.place / AGENT)},
        "topics": {"prefix": prefix},
        "tables": {"include": [f"{keyspace}.*"]},
    }


def checked(program: tuple[str, ...], settings: Path) -> subprocess.CompletedProcess[str]:
    """`tailrace check`, as the same user."""
    parts = [word for part in ("directories", "cassandra", "kafka") for word in ("--only", part)]
    command = [sys.executable, *program, "--log-level", "debug", "check", "-c", str(settings), *parts]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


CHANGING: Final = "tailrace-changing"


@pytest.mark.promise("agent.wrong-passwords")
@pytest.mark.long
def test_passwords_that_are_wrong_at_the_start_and_change_while_it_runs(
    guarded: Guarded, keyspace_name: str, prefix: str
) -> None:
    """Health says what is refused, as often as it is, and the agent goes on when the password is right again."""
    right, wrong = token_hex(12), token_hex(12)
    let_in(guarded, prefix, wrong)
    settings = load_settings(None, {**guarded.cluster_environment, **guarded.kafka_environment("SCRAM-SHA-512")})
    written = sections(guarded, settings, keyspace_name, prefix)
    write_secret(guarded.place / CHANGING, right)
    for section, name in (("cluster", "password_file"), ("kafka", "sasl.password_file")):
        written[section][name] = str(guarded.place / CHANGING)
    written["cluster"] |= {"username": CHANGING, "request_timeout_seconds": 2}
    written["kafka"]["sasl.username"] = CHANGING
    with AgentProcess(guarded.place, written, "changing") as agent:
        agent.until(lambda: "incorrect" in agent.status().get("degraded", {}).get("service", ""))
        set_role_password(guarded, right)
        agent.until(lambda: "Authentication failed" in agent.status().get("degraded", {}).get("service", ""))
        create_and_fill(guarded, keyspace_name, range(10))  # first: of another test's segments alone it selects none
        set_user_password(guarded, right)
        agent.until_ready()
        agent.until(lambda: agent.count("changes") >= 10)

        set_role_password(guarded, wrong)
        guarded.cassandra.node.restart()
        agent.until(lambda: "incorrect" in json.dumps(agent.status().get("degraded")))
        create_and_fill(guarded, keyspace_name, range(10, 20))
        set_role_password(guarded, right)
        agent.until(lambda: not refused(agent) and agent.count("changes") >= 20)

        set_user_password(guarded, wrong)
        guarded.kafka.broker.restart()
        create_and_fill(guarded, keyspace_name, range(20, 30))
        agent.until(lambda: "Authentication failed" in agent.status().get("degraded", {}).get("service", ""))
        set_user_password(guarded, right)
        agent.until(lambda: not refused(agent) and agent.count("changes") >= 30)
        printed = json.dumps(agent.status())
        assert agent.stop() == 0, agent.words()
    found = ints(published(guarded.kafka.broker, prefix, f"{prefix}.{keyspace_name}.t"))
    assert found == dict.fromkeys(range(30), 1)
    printed += agent.log.read_text()
    assert_no_secret(printed, guarded)
    assert right not in printed


def refused(agent: AgentProcess) -> bool:
    """Whether a password is, by what health says. Health names tables of other tests besides."""
    said = json.dumps(agent.status().get("degraded"))
    return "incorrect" in said or "Authentication failed" in said


def let_in(guarded: Guarded, prefix: str, password: str) -> None:
    """A user of its own, with the agent's rights, at Kafka and at Cassandra."""
    set_user_password(guarded, password)
    guarded.kafka.allow(
        [
            AclBinding(
                one.restype, one.name, one.resource_pattern_type, f"User:{CHANGING}", "*", one.operation,
                one.permission_type,
            )
            for one in rights(AGENT, prefix)
        ]
    )  # fmt: skip
    with superuser(guarded) as cluster:
        for statement in grants(password):
            cluster.execute(re.sub(rf"\b{AGENT}\b", f'"{CHANGING}"', statement))


def set_user_password(guarded: Guarded, password: str) -> None:
    guarded.kafka.set_password(CHANGING, password)


def set_role_password(guarded: Guarded, password: str) -> None:
    """Cassandra refuses it within 5 s of the change before."""
    with superuser(guarded) as cluster:
        eventually(lambda: cluster.execute(f"ALTER ROLE \"{CHANGING}\" WITH PASSWORD = '{password}'"))


def create_and_fill(guarded: Guarded, keyspace: str, keys: range) -> None:
    with superuser(guarded) as cluster:
        cluster.execute(
            f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication ="
            " {'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        cluster.execute(f"CREATE TABLE IF NOT EXISTS {keyspace}.t (k int PRIMARY KEY, v blob) WITH cdc = true")
        for key in keys:
            cluster.execute(f"INSERT INTO {keyspace}.t (k) VALUES ({key})")


def process_list() -> str:
    """The command line of every process, as `ps` shows it to everybody."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:  # it ended meanwhile
            continue
    return "\n".join(found)


# -- Spark


@pytest.fixture
def followed(guarded: Guarded, prefix: str) -> Iterator[Table]:
    """A table with one change in its topic, and the Spark job's rights."""
    plain = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="plain")
    for user in (AGENT, STREAM):
        guarded.kafka.allow(rights(user, prefix))
    with closing(Feed(guarded.kafka.broker.bootstrap, prefix)) as feed:
        feed.announce()
        feed.add(plain)
        feed.publish([Log(plain).insert((1,), (), 2_000_000, v="one")])
        yield plain


@pytest.mark.parametrize("how", ["PLAIN", "SCRAM-SHA-512", "mutual"])
def test_spark_reads_by(how: str, guarded: Guarded, followed: Table, spark: SparkSession, prefix: str) -> None:
    settings = load_settings(None, guarded.kafka_environment(how))
    options = java_options(settings.kafka.reveal(), settings.stream.kafka.reveal())
    topics = {"subscribe": f"{prefix}.{followed}", "startingOffsets": "earliest", "endingOffsets": "latest"}
    frame = spark.read.format("kafka").options(**options, **topics).load()
    assert frame.select("offset").count() == 1


@pytest.mark.long
def test_a_stream_from_a_kafka_that_demands_tls_and_a_password(
    guarded: Guarded, followed: Table, prefix: str, tmp_path: Path
) -> None:
    stream = {
        **guarded.kafka_environment("SCRAM-SHA-512"),
        "TAILRACE_KAFKA__SASL_USERNAME": STREAM,
        "TAILRACE_KAFKA__SASL_PASSWORD_FILE": str(guarded.place / STREAM),
        "TAILRACE_TOPICS__PREFIX": prefix,
        "TAILRACE_STREAM__CHECKPOINT": str(tmp_path / "checkpoint"),
        "TAILRACE_STREAM__SNAPSHOT": "never",
        "TAILRACE_STREAM__SPARK__SPARK_MASTER": "local[1]",
        "TAILRACE_STREAM__SPARK__SPARK_DRIVER_MEMORY": "512m",
        "TAILRACE_STREAM__SPARK__SPARK_HADOOP_FS_S3A_SECRET_KEY": guarded.passwords["key"],
        "TAILRACE_SINK__LOCAL__URL": f"sqlite:///{tmp_path}/sink.db",
    }
    code, printed = streamed(stream, tmp_path, "--once")
    assert code == 0, printed[-6000:]
    with closing(Database(f"sqlite:///{tmp_path}/sink.db")) as database:
        assert database.select(f"SELECT id, v FROM {followed.keyspace}_{followed.name}") == [(1, "one")]
    assert "SparkSubmit" in printed
    assert_no_secret(printed, guarded)
    mutual = {name: value for name, value in stream.items() if "SASL" not in name} | guarded.kafka_environment("mutual")
    wrong = {"TAILRACE_KAFKA__SSL_CA_LOCATION": str(guarded.place / "other-ca.pem")}
    # What Spark says of a query that fails has the query's plan in it, and that the source's options.
    for way in (stream, mutual):
        code, printed = streamed({**way, **wrong}, tmp_path)
        assert code == 1, printed[-6000:]
        assert "SslAuthenticationException" in printed
        assert_no_secret(printed, guarded)
    code, printed = streamed({**stream, **wrong, "TAILRACE_STREAM__ONCE_WAIT_SECONDS": "3"}, tmp_path, "--once")
    assert code == 1, printed[-6000:]
    assert "`stream --once` ends without reading anything: Cannot connect to Kafka at " in printed
    assert "certificate verify failed" in printed
    assert "are bootstrap.servers, security.protocol and credentials right?" in printed
    assert_no_secret(printed, guarded)


def streamed(environment: Mapping[str, str], directory: Path, *words: str) -> tuple[int, str]:
    """`tailrace stream`: its exit code; all that it prints, and all that `ps` showed while it ran."""
    command = [sys.executable, "-c", "from tailrace.cli.main import run; run()", "--log-level", "debug", "stream"]
    own = {name: value for name, value in os.environ.items() if not name.startswith("TAILRACE_")}
    cache = {name: value for name, value in os.environ.items() if name == "TAILRACE_CACHE"}
    seen: set[str] = set()
    log = directory / "stream.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *words], env={**own, **cache, **environment}, cwd=directory, stdout=output, stderr=output
        )

    def ended() -> bool:
        seen.update(process_list().splitlines())
        return process.poll() is not None

    try:
        until(ended, "the end of the command", 240, state=log.read_text)
    finally:
        process.kill()
        process.wait()
    return process.returncode, log.read_text() + "\n".join(seen)
