"""Builds the stand-ins with buildah, from a copy of this folder with the jars that they need."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tailrace.local.cassandra import CassandraSettings, jvm_options
from tailrace_common.java.jars import fetch_sets
from tests.integration.deploy.podman import Podman
from tests.jars import fetch_test_sets

HERE: Final = Path(__file__).parent
VARIABLES: Final = {
    "cassandra": "CASSANDRA_IMAGE",
    "kafka": "KAFKA_IMAGE",
    "postgres": "POSTGRES_IMAGE",
    "prometheus": "PROMETHEUS_IMAGE",
}
"""Target of the Dockerfile -> the compose file's variable for the image."""


def build_stand_ins(podman: Podman, targets: Iterable[str]) -> dict[str, str]:
    """Variables of the compose file, with the images for them."""
    context = podman.directory / "stand-ins"
    _copy(context)
    images = {}
    for target in targets:
        images[VARIABLES[target]] = f"localhost/tailrace-stand-in-{target}"
        podman.build_image(context / "Dockerfile", context, target, images[VARIABLES[target]], {"BASE": podman.base()})
    return images


def _copy(context: Path) -> None:
    shutil.rmtree(context, ignore_errors=True)
    shutil.copytree(HERE, context, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for name, jars in {
        "cassandra": fetch_sets("cassandra"),
        "kafka": (*fetch_sets("kafka"), *fetch_test_sets("kafka-tools")),
    }.items():
        folder = context / "jars" / name
        folder.mkdir(parents=True)
        for jar in jars:
            shutil.copy2(jar, folder)
    # A node that joins waits for the ring: a short delay, and it finds no seed.
    options = jvm_options(CassandraSettings(ring_delay_ms=5000), Path("/opt/cassandra"), None)
    (context / "cassandra" / "jvm.options").write_text("".join(f"{option}\n" for option in options))
