"""One Cassandra, one Kafka and one Spark session for each process of the run; names of its own for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient

from tailrace.local import LocalCassandra, LocalKafka, LocalRegistry
from tailrace_spark.sinks.worker_cache import close_idle
from tests.integration.agents import cql
from tests.integration.bench import Bench
from tests.integration.feed import Feed
from tests.integration.ways import Ground
from tests.services.choice import Means, choose

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs the real services, and lives with py4j's habit of dropping sockets unclosed."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning"))


@pytest.fixture(scope="session")
def means() -> Means:
    """Child processes or containers, as TAILRACE_TEST_SERVICES says, which the run's start has looked at."""
    return choose(os.environ)


@pytest.fixture
def as_processes(means: Means) -> None:
    """Passes over a test that starts nodes of its own where services are containers."""
    if means is Means.CONTAINERS:
        pytest.skip("its nodes are run as child processes")


@pytest.fixture(scope="session")
def service_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the shared services keep their data and logs; pytest keeps the folders of the last runs."""
    return tmp_path_factory.mktemp("services")


@pytest.fixture(scope="session")
def cassandra(means: Means, service_directory: Path) -> Iterator[LocalCassandra]:
    """A Cassandra 5.0.9 with CDC on, its commit log turning over every MiB. A test that kills it starts it again."""
    if means is Means.CONTAINERS:
        from tests.services.containers import ContainerCassandra as Service
    else:
        from tailrace.local import LocalCassandra as Service  # type: ignore[assignment]  # the same interface
    with Service(service_directory / "cassandra") as service:
        yield service
        close_idle()  # tests play worker processes in this one


@pytest.fixture(scope="session")
def cassandra_version(cassandra: LocalCassandra) -> str:
    """The run's node, with the version that it says."""
    with cql(cassandra) as session:
        [row] = session.execute("SELECT release_version FROM system.local")
    return f"Cassandra {row.release_version}"


@pytest.fixture(scope="session")
def kafka(means: Means, service_directory: Path) -> Iterator[LocalKafka]:
    """A Kafka 4.3.1 that creates no topic by itself. A test that kills it starts it again."""
    if means is Means.CONTAINERS:
        from tests.services.containers import ContainerKafka as Service
    else:
        from tailrace.local import LocalKafka as Service  # type: ignore[assignment]  # the same interface
    with Service(service_directory / "kafka") as service:
        yield service


@pytest.fixture(scope="session")
def registry(service_directory: Path) -> Iterator[LocalRegistry]:
    """A schema registry, always a child process; every test has its own subjects."""
    with LocalRegistry(service_directory / "registry") as service:
        yield service


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark session with the Kafka source and Avro; every test has its own checkpoint folder."""
    from tests.services.spark import start_spark

    session = start_spark(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture
def empty_feed(kafka: LocalKafka, prefix: str) -> Iterator[Feed]:
    """What agents publish, before anything is; a test has topics of its own."""
    with closing(Feed(kafka.bootstrap, prefix)) as feed:
        yield feed


@pytest.fixture
def feed(empty_feed: Feed) -> Feed:
    """The same with a generation."""
    empty_feed.announce()
    return empty_feed


@pytest.fixture
def client(registry: LocalRegistry) -> Iterator[SchemaRegistryClient]:
    """Confluent's own, of the registry."""
    with SchemaRegistryClient({"url": registry.url, "timeout": 10}) as client:
        yield client


@pytest.fixture
def ground(tmp_path: Path, kafka: LocalKafka, request: pytest.FixtureRequest) -> Iterator[Ground]:
    """Gives back what stores have when the test is over. The run's Spark and Cassandra start when asked for."""
    value = request.getfixturevalue
    with ExitStack() as stack:
        yield Ground(tmp_path, kafka, stack, spark=lambda: value("spark"), cassandra=lambda: value("cassandra"))


@pytest.fixture
def keyspace_name() -> str:
    """A keyspace name that no other test uses."""
    return f"ks_{uuid4().hex[:12]}"


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic prefix that no other test uses; its topics go with the test, as thousands of them slow a broker down."""
    name = f"t{uuid4().hex[:12]}"
    yield name
    if "kafka" in request.fixturenames:
        admin = AdminClient({"bootstrap.servers": request.getfixturevalue("kafka").bootstrap, "log_level": 2})
        with suppress(KafkaException):
            topics = [topic for topic in admin.list_topics(timeout=60).topics if topic.startswith(f"{name}.")]
            for future in admin.delete_topics(topics, operation_timeout=30).values() if topics else ():
                with suppress(KafkaException):
                    future.result(60)


@pytest.fixture
def bench(
    cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> Iterator[Bench]:
    """A keyspace on the run's node, and the prefix's agent to begin at this instant."""
    with Bench.begun(cassandra, kafka, prefix, keyspace_name, tmp_path) as bench:
        yield bench
