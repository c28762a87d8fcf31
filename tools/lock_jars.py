"""Writes what Maven resolves for each jar set, with size and SHA-256, into two locks.

common/tailrace_common/java/jars.lock.json is installed. tests/jars.lock.json has what tests alone use: nobody who
installs Tailrace has to look at the licences of those.

Needed only when a version below changes: `python tools/lock_jars.py`, with `mvn` on the PATH. Versions are given one by
one and never computed from each other, because not every artifact exists in every version.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.request import Request, urlopen

from tailrace_common.java.jars import Jar, find_repository

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "common" / "tailrace_common" / "java" / "jars.lock.json"
TEST_LOCK = ROOT / "tests" / "jars.lock.json"
TESTS_ALONE = {"connect", "opensearch", "elasticsearch", "iceberg", "delta", "iceberg-rest", "kafka-tools"}
LIST = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:list"

# What pyspark lacks to read Kafka and Avro, by its patch release; pyproject.toml has the range of these. Avro's jar and
# that of tokens cannot be had of each patch: those here are of the same or of an earlier minor version.
_WITH_4_1 = (
    "org.apache.spark:spark-avro_2.13:4.1.1",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
SPARK: dict[str, tuple[str, ...]] = {
    patch: (f"org.apache.spark:spark-sql-kafka-0-10_2.13:{patch}", *others)
    for patch, others in {
        "4.1.0": _WITH_4_1,
        "4.1.1": _WITH_4_1,
        "4.1.2": _WITH_4_1,
        "4.1.3": _WITH_4_1,
        "4.2.0": (
            "org.apache.spark:spark-avro_2.13:4.2.0",
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
            "org.apache.kafka:kafka-clients:3.9.2",
            "org.apache.commons:commons-pool2:2.13.1",
        ),
    }.items()
}

# Set -> coordinates, and whether Maven adds what they depend on at run time.
SETS: dict[str, tuple[tuple[str, ...], bool]] = {
    "cassandra": (("org.apache.cassandra:cassandra-all:5.0.9",), True),
    # What the tests of every version start, and nothing else.
    "cassandra-4.0": (("org.apache.cassandra:cassandra-all:4.0.19",), True),
    "cassandra-4.1": (("org.apache.cassandra:cassandra-all:4.1.10",), True),
    "cassandra-6.0": (("org.apache.cassandra:cassandra-all:6.0-alpha2",), True),
    # Kafka brings slf4j's interface only; without a binding to it the broker logs nothing.
    "kafka": (("org.apache.kafka:kafka_2.13:4.3.1", "org.slf4j:slf4j-simple:1.7.36"), True),
    # What tests of Debezium's format start: Kafka Connect with Debezium's JDBC sink and transforms.
    "connect": (
        (
            "org.apache.kafka:connect-runtime:4.3.1",
            "org.apache.kafka:connect-json:4.3.1",
            "io.debezium:debezium-connector-jdbc:3.5.0.Final",
            "org.slf4j:slf4j-simple:1.7.36",
        ),
        True,
    ),
    # For tests alone: Kafka's commands, on the jars of its broker.
    "kafka-tools": (("org.apache.kafka:kafka-tools:4.3.1",), False),
    # What tests of the opensearch sink start: a server without plugins but its HTTP.
    "opensearch": (
        (
            "org.opensearch:opensearch:2.19.3",
            "org.opensearch.plugin:transport-netty4-client:2.19.3",
            "org.apache.logging.log4j:log4j-core:2.21.0",
        ),
        True,
    ),
    # The last Elasticsearch of which the same can be made.
    "elasticsearch": (
        (
            "org.elasticsearch:elasticsearch:7.17.28",
            "org.elasticsearch.plugin:transport-netty4-client:7.17.28",
            "org.apache.logging.log4j:log4j-core:2.17.1",
        ),
        True,
    ),
    **{f"spark-{patch}": (jars, False) for patch, jars in SPARK.items()},
    # For tests alone: the Spark that reads what pyiceberg wrote.
    "iceberg": (("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",), False),
    # For tests alone: the Spark that reads what delta-rs wrote. The rest that Delta's own pom names is for catalogs.
    "delta": (("io.delta:delta-spark_4.1_2.13:4.4.0", "io.delta:delta-storage:4.4.0"), False),
    # What tests of Iceberg's REST catalogs start: the servlet that Iceberg's own tests speak to. Of the newest version
    # that has it.
    "iceberg-rest": (
        (
            "org.apache.iceberg:iceberg-core:1.11.0",
            "org.apache.iceberg:iceberg-core:1.11.0:tests",
            "org.eclipse.jetty.ee10:jetty-ee10-servlet:12.1.5",
            "org.slf4j:slf4j-simple:2.0.17",
            "org.xerial:sqlite-jdbc:3.50.3.0",
        ),
        True,
    ),
}

# Drivers of databases that no test writes to.
LEFT_OUT = ("com.microsoft.sqlserver", "com.mysql", "com.oracle.database.jdbc", "org.mariadb.jdbc")

# Set -> whole servers in one file: there is nothing to resolve. 3.0 is the last that runs on Java 17.
ARCHIVES: dict[str, tuple[str, ...]] = {"registry": ("io.apicurio:apicurio-registry-app:3.0.9:all@tar.gz",)}


def main() -> int:
    """Resolve every set with Maven and write the lock."""
    sets = {name: resolve(coordinates, transitive) for name, (coordinates, transitive) in SETS.items()}
    sets |= {name: [archive(coordinate) for coordinate in coordinates] for name, coordinates in ARCHIVES.items()}
    for lock, names in ((LOCK, sets.keys() - TESTS_ALONE), (TEST_LOCK, TESTS_ALONE)):
        chosen = {name: jars for name, jars in sets.items() if name in names}
        lock.write_text(json.dumps({"sets": chosen}, indent=1) + "\n")
    for name, jars in sets.items():
        sys.stderr.write(f"{name}: {len(jars)} jars, {sum(int(jar['size']) for jar in jars):,} bytes\n")
    return 0


def resolve(coordinates: tuple[str, ...], transitive: bool) -> list[dict[str, str | int]]:
    """The jars of one set, sorted by coordinate."""
    with tempfile.TemporaryDirectory() as directory:
        pom, listed = Path(directory, "pom.xml"), Path(directory, "list.txt")
        pom.write_text(pom_of(coordinates, transitive))
        options = ["-DincludeScope=runtime", "-DoutputAbsoluteArtifactFilename=true", f"-DoutputFile={listed}"]
        subprocess.run(["mvn", "-q", "-B", "-f", str(pom), LIST, *options], check=True)  # noqa: S603, S607
        return sorted(jars_of(listed.read_text()), key=lambda jar: str(jar["coordinate"]))


def pom_of(coordinates: tuple[str, ...], transitive: bool) -> str:
    """A pom that depends on the coordinates, with or without what these depend on."""
    alone = "" if transitive else "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"{''.join(f'<classifier>{one}</classifier>' for one in classifier)}"
        f"<exclusions>{alone}</exclusions></dependency>"
        for group, artifact, version, *classifier in (coordinate.split(":") for coordinate in coordinates)
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>local</groupId><artifactId>jars</artifactId>"
        f"<version>1</version><packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )


def jars_of(listed: str) -> list[dict[str, str | int]]:
    """`group:artifact:jar[:classifier]:version:scope:path` lines as entries of the lock."""
    jars = []
    for line in listed.splitlines():
        parts = line.split(" -- ")[0].strip().split(":")
        if len(parts) < 6 or parts[2] != "jar" or parts[0] in LEFT_OUT:
            continue
        group, artifact, _, *classifier, version, _, path = parts
        data = Path(path).read_bytes()
        jars.append(
            {
                "coordinate": ":".join([group, artifact, version, *classifier]),
                "sha256": hashlib.sha256(data).hexdigest(),
                "size": len(data),
            }
        )
    return jars


def archive(coordinate: str) -> dict[str, str | int]:
    """The lock's entry of a file that the Maven repository has under its coordinate."""
    repository = find_repository()
    request = Request(f"{repository.root}/{Jar(coordinate, '', 0).path}")  # noqa: S310 - http, https and file only
    if repository.authorization is not None:
        request.add_unredirected_header("Authorization", repository.authorization)
    with urlopen(request) as response:  # noqa: S310
        data = response.read()
    return {"coordinate": coordinate, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


if __name__ == "__main__":
    sys.exit(main())
