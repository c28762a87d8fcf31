"""What every sink's settings do where they cannot work: they are refused by their names, and without secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tailrace_common.settings import load_settings
from tailrace_schemas.errors import SettingsError

SECRET: Final = "hunter2"  # noqa: S105 - what must not be seen
SEARCH: Final = 'url = "https://search:9200"'
AVRO: Final = 'encoding = "avro"\nregistry.url = "http://registry"'
IMAGES: Final = 'images = "sqlite:///i.db"'
REFUSED: Final = [
    ("http", "", 'sink.x.url is not set; give url = "https://example.org/changes" or the like'),
    ("http", 'url = "example.org"', "sink.x.url must begin with http:// or https:// and a host"),
    ("http", 'url = "https://h"\nnext_signing_key = "hunter2"', "next_signing_key needs signing_key"),
    ("http", 'url = "https://h"\nhold_on = [500]', "sink.x.hold_on"),
    ("files", "", 'sink.x.path is not set; give path = "s3://bucket/changes" or the like'),
    ("files", 'path = "/"', "path must name a directory"),
    ("files", 'path = "a"\naccess_key = "hunter2"', "access_key and secret_key are given both or not at all"),
    ("iceberg", "", 'sink.x.path is not set; give path = "/var/lib/tailrace/lake" or the like'),
    ("iceberg", 'path = "s3://b/x"', "catalog is not set: on S3 one has to tell which commit came first"),
    ("iceberg", 'path = "gs://b/x"', "path is a directory or begins with s3://, unlike gs://b/x"),
    ("iceberg", 'path = "a"\ncatalog = {uri = "x"}', "catalog needs one of type and py-catalog-impl"),
    ("iceberg", 'path = "a"\ncatalog = {type = "hadoop"}', "leave [catalog] out for a catalog in SQLite"),
    ("iceberg", 'path = "a"\ncatalog = {type = "jdbc", uri = "jdbc:x"}', 'the same catalog is type = "sql"'),
    ("iceberg", 'path = "a"\ncatalog = {type = "sql", jdbc.user = "x"}', "belongs to Iceberg's JDBC catalog"),
    ("iceberg", 'path = "a"\ncatalog = {catalog-impl = "org.x"}', "names a class of Java"),
    ("iceberg", 'path = "a"\ncatalog = {type = "nessie"}', "must be one of sql, rest, hive, glue"),
    ("iceberg", 'path = "a"\ncatalog = {type = "rest", credentials = "x"}', 'did you mean "credential"?'),
    ("iceberg", 'path = "a"\ncatalog = {type = "sql", warehouse = "x"}', "catalog.warehouse is not yours to set"),
    ("iceberg", 'path = "a"\ncatalog = {type = "sql", py-io-impl = "x"}', "py-io-impl is not yours to set"),
    ("iceberg", 'path = "a"\nnamespace = "a..b"', "namespace must be names with dots between them"),
    ("rabbitmq", "", 'sink.x.url is not set; give url = "amqps://rabbit.example.org" or the like'),
    ("rabbitmq", 'url = "http://h"', "sink.x.url must begin with amqp:// or amqps:// and a host"),
    ("rabbitmq", 'url = "amqp://"', "sink.x.url must begin with amqp:// or amqps:// and a host"),
    ("rabbitmq", 'url = "amqp://h:port"', "sink.x.url is no URL with a host and a port"),
    ("rabbitmq", 'url = "amqp://u@h"', "sink.x.url must be without user and password: give username"),
    ("rabbitmq", 'url = "amqp://h/v"', "sink.x.url must end behind host and port: give vhost"),
    ("rabbitmq", 'url = "amqp://h?password=hunter2"', "sink.x.url must end behind host and port: give vhost"),
    ("rabbitmq", 'url = "amqp://h"\nqueue = "q"', "sink.x.queue must contain {number}"),
    ("rabbitmq", 'url = "amqp://h"\nqueue = "{x}{number}"', "sink.x.queue may contain {exchange} and {number}"),
    ("rabbitmq", 'url = "amqp://h"\nexchange = ""', "exchange must have a name"),
    ("rabbitmq", 'url = "amqp://h"\nexchange = "' + "é" * 128 + '"', "exchange may have 255 bytes"),
    ("rabbitmq", 'url = "amqp://h"\ntls_ca_file = "x"', "tls_ca_file needs a url that begins with amqps://"),
    ("rabbitmq", 'url = "amqp://h"\nqueues = 0', "sink.x.queues"),
    ("opensearch", 'url = "search:9200"', "url must begin with http:// or https:// and a host"),
    ("opensearch", 'url = "https://search:9200/?a=b"', "url must end behind host, port and path"),
    ("opensearch", f'{SEARCH}\nusername = "u"', "username and password need each other"),
    ("opensearch", f'{SEARCH}\nusername = "u"\npassword = "hunter2"\napi_key = "hunter2"', "keep one"),
    ("opensearch", 'url = "http://search"\ntls_ca_file = "ca.pem"', "tls_ca_file needs a url that begins with"),
    ("opensearch", f'{SEARCH}\nindex = "{{keyspace}}"', "index must contain {table}"),
    ("opensearch", f'{SEARCH}\nindex = "{{keyspaces}}.{{table}}"', "index may contain {keyspace} and {table}, and"),
    ("opensearch", f'{SEARCH}\nindex = "Shop.{{table}}"', "index must be in lower case"),
    ("opensearch", f'{SEARCH}\nindex = "_{{table}}"', "index must be in lower case, without"),
    ("opensearch", f"{SEARCH}\nbulk_documents = 20_000", "bulk_documents"),
    ("kafka", 'encoding = "avro"', "needs registry.url"),
    ("kafka", f'{AVRO}\ncloudevents = "structured"', 'it may be "binary"'),
    ("kafka", f"{AVRO}\n{IMAGES}", 'format = "debezium" alone'),
    ("kafka", 'encoding = "avro"\nregistry.url = "http://u:hunter2@registry"', "without user and password"),
    ("kafka", f'{AVRO}\nregistry."no.such.setting" = "hunter2"', "no.such.setting"),
    ("kafka", 'format = "debezium"', "needs images"),
    ("kafka", f'format = "debezium"\n{IMAGES}\ncloudevents = "binary"', "cloudevents is for"),
    ("kafka", f'topic = "x.{{key.a}}"\nformat = "debezium"\n{IMAGES}', "topic may name no columns of a key"),
    ("kafka", 'topic = "{row.a}"', "may contain"),
    ("kafka", f"{AVRO}\ntransactions = true", "transactions are for format"),
    ("http", 'url = "http://{key.a}.example/"', "no value decides where changes go"),
    ("http", 'url = "http://h:{key.a}/"', "braces behind its host"),
    ("http", f'url = "http://h"\n{IMAGES}\ntransactions = true', "transactions and images exclude"),
    ("http", 'url = "http://u:hunter2@127.0.0.1:1/x"', "must be without"),
    ("rabbitmq", 'url = "amqp://h"\nrouting_key = "{key.a}"', "routing_key needs declare = false"),
    ("rabbitmq", 'url = "amqp://h"\ndeclare = false\nrouting_key = "{a}"', "may contain"),
    ("rabbitmq", 'url = "amqp://h"\ntransactions = true', "transactions"),
    ("rabbitmq", 'url = "amqp://u:hunter2@127.0.0.1:1"', "must be without"),
    ("opensearch", 'url = "http://u:hunter2@127.0.0.1:1"', "must be without"),
    ("files", 'path = "x"\nformat = "parquet"\nimages = "sqlite:///i.db"', 'set format = "jsonl"'),
    ("files", 'path = "/x"\ntransactions = true', "transactions stand in JSON only"),
    ("files", 'path = "s3://u:hunter2@bucket/x"', "must be without"),
    ("delta", 'path = "s3://bucket/x"\nendpoint = "http://u:hunter2@minio:9000"', "must be without"),
    ("iceberg", 'path = "s3://u:hunter2@bucket/x"', "must be without"),
    ("console", "transactions = true", "transactions"),
    ("sql", "transactions = true", "transactions"),
    ("sql", 'urll = ""', ".toml: unknown setting sink.x.urll; did you mean sink.x.url?"),
]


@pytest.mark.promise("sinks.half-configured")
@pytest.mark.parametrize(("kind", "lines", "words"), REFUSED)
def test_half_configured_it_is_refused(tmp_path: Path, kind: str, lines: str, words: str) -> None:
    path = tmp_path / "t.toml"
    path.write_text(f'[sink.x]\ntype = "{kind}"\n{lines}\n', encoding="utf-8")
    with pytest.raises(SettingsError) as raised:
        load_settings(path, {})
    assert words in str(raised.value)
    assert SECRET not in str(raised.value)
