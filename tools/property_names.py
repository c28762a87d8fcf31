"""Writes common/tailrace_common/properties/names.json: the properties of librdkafka, Java's Kafka consumer and Spark.

Needed only when one of the three changes its version: `python tools/property_names.py`. The settings take a wrong name
for one of these; tests hold the list against the installed librdkafka.
"""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from tailrace_common.java.find import find_java
from tailrace_common.java.jars import fetch_sets

TARGET: Final = Path(__file__).parents[1] / "common" / "tailrace_common" / "properties" / "names.json"
_CONSTANT: Final = re.compile(rb"\x01(..)(spark\.[A-Za-z][A-Za-z0-9.\-]*)", re.DOTALL)


def librdkafka() -> Iterator[str]:
    """The names that librdkafka's own documentation has, which it prints; callbacks are not for files."""
    library = next(path for path in distribution("confluent-kafka").files or () if path.name.startswith("librdkafka-"))
    clib = ctypes.CDLL(None)
    clib.fopen.restype, clib.fclose.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    shown = ctypes.CDLL(str(library.locate())).rd_kafka_conf_properties_show
    shown.argtypes = [ctypes.c_void_p]
    with tempfile.NamedTemporaryFile() as file:
        stream = clib.fopen(file.name.encode(), b"w")
        shown(stream)
        clib.fclose(stream)
        lines = Path(file.name).read_text(encoding="utf-8").splitlines()
    for line in lines:
        name, *rest = line.split("|")
        if rest and re.fullmatch(r"[a-z][a-z0-9._]+\s+", name) and "*Type: see" not in line:
            yield name.strip()


def java_consumer() -> Iterator[str]:
    """The names that Java's consumer documents, as its class prints them; of the client that Spark's source has."""
    jars = [str(path) for path in fetch_sets("spark") if "kafka-clients" in path.name]
    logging = [str(path) for path in fetch_sets("kafka") if "slf4j" in path.name]
    words = [find_java().program, "-cp", ":".join(jars + logging), "org.apache.kafka.clients.consumer.ConsumerConfig"]
    page = subprocess.run(words, check=True, capture_output=True, text=True).stdout  # noqa: S603 - words of our own
    yield from re.findall(r'<h4><a id="([a-z0-9.]+)"></a>', page)


def spark() -> Iterator[str]:
    """Every constant of Spark's classes that begins as its properties do."""
    folder = Path(str(distribution("pyspark").locate_file("pyspark"))) / "jars"
    for jar in sorted(folder.glob("spark-*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                if entry.endswith(".class"):
                    for length, name in _CONSTANT.findall(archive.read(entry)):
                        if int.from_bytes(length, "big") == len(name) and not name.endswith(b"."):
                            yield name.decode()


def main() -> None:
    """Write the file."""
    names = {"librdkafka": librdkafka, "java_consumer": java_consumer, "spark": spark}
    lists = {program: sorted(set(read())) for program, read in names.items()}
    TARGET.write_text(json.dumps(lists, indent=1) + "\n", encoding="utf-8")
    sys.stderr.write(f"{TARGET.name}: {', '.join(f'{len(names)} of {program}' for program, names in lists.items())}\n")


if __name__ == "__main__":
    main()
