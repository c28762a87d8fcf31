"""The settings: file, environment, secrets, and what is said when they are wrong."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel, TypeAdapter

from tailrace_common.sections.section import Section
from tailrace_common.settings import Settings, load_settings, settings_from
from tailrace_common.settings.sample import render_sample
from tailrace_schemas.errors import SettingsError
from tailrace_spark.sinks.cassandra.settings import LogTablesSinkSettings
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tailrace_spark.sinks.sql.settings import SqlSinkSettings
from tailrace_spark.snapshot.settings import SnapshotSettings

ROOT = Path(__file__).resolve().parents[4]


def load(tmp_path: Path, text: str, **environ: str) -> Settings:
    path = tmp_path / "t.toml"
    path.write_text(text, encoding="utf-8")
    return load_settings(path, {f"TAILRACE_{name}": value for name, value in environ.items()})


def complaint(tmp_path: Path, text: str = "", **environ: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, text, **environ)
    assert caught.value.exit_code == 2
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_nothing_given_is_the_defaults() -> None:
    settings = load_settings(None, {})
    assert settings == Settings()
    assert settings.kafka.reveal() == {"bootstrap.servers": "127.0.0.1:9092"}
    assert (settings.agent.transaction_changes, settings.agent.transaction_milliseconds) == (64, 20)
    assert settings.stream_sink() == ("local", settings.sink["local"])


def test_the_process_environment_is_read_only_when_it_is_handed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_CLUSTER__PORT", "1")
    assert Settings().cluster.port == load_settings(None, {}).cluster.port == 9042


def test_environment_wins_over_file_and_the_rest_of_the_section_stays(tmp_path: Path) -> None:
    settings = load(tmp_path, "[cluster]\nport = 1\nprotocol_version = 4", CLUSTER__PORT="2")
    assert (settings.cluster.port, settings.cluster.protocol_version) == (2, 4)


@pytest.mark.parametrize(
    ("variable", "value", "path", "expected"),
    [
        ("CLUSTER__CONTACT_POINTS", "10.0.0.1, 10.0.0.2", "cluster.contact_points", ("10.0.0.1", "10.0.0.2")),
        ("CLUSTER__CONTACT_POINTS", '["a"]', "cluster.contact_points", ("a",)),
        ("CLUSTER__TLS", "true", "cluster.tls", True),
        ("AGENT__CDC_RAW_DIRECTORY", "/x", "agent.cdc_raw_directory", Path("/x")),
        ("AGENT__POLL_SECONDS", "0.5", "agent.poll_seconds", 0.5),
        ("TABLES__INCLUDE", "shop.*,*.orders", "tables.include", ("shop.*", "*.orders")),
        ("TABLES__INCLUDE", "", "tables.include", ()),
        ("TOPICS__REPLICATION_FACTOR", "1", "topics.replication_factor", 1),
    ],
)
def test_variables(tmp_path: Path, variable: str, value: str, path: str, expected: object) -> None:
    found: object = load(tmp_path, "", **{variable: value})
    for name in path.split("."):
        found = getattr(found, name)
    assert found == expected


def test_kafka_passes_through_whole_from_bare_quoted_and_variable_names(tmp_path: Path) -> None:
    text = (
        '[kafka]\nbootstrap.servers = "a:1"\n"sasl.username" = "u"\n"linger.ms" = 5\n"socket.keepalive.enable" = true'
    )
    settings = load(tmp_path, text, KAFKA__SASL_USERNAME="v", KAFKA__SECURITY_PROTOCOL="SSL")
    assert settings.kafka.bootstrap_servers == "a:1"
    assert settings.kafka.reveal() == {
        "bootstrap.servers": "a:1",
        "sasl.username": "v",
        "linger.ms": 5,
        "socket.keepalive.enable": True,
        "security.protocol": "SSL",
    }


def test_spark_names_keep_their_case(tmp_path: Path) -> None:
    text = '[stream.spark]\n"spark.dynamicAllocation.enabled" = true\nspark.executor.memory = "4g"'
    expected = {"spark.dynamicAllocation.enabled": True, "spark.executor.memory": "4g"}
    assert load(tmp_path, text).stream.spark.reveal() == expected
    by_variable = load(tmp_path, "", STREAM__SPARK='{"spark.dynamicAllocation.enabled": "true"}')
    assert by_variable.stream.spark.reveal() == {"spark.dynamicAllocation.enabled": "true"}


def test_a_named_sink_replaces_the_default_one(tmp_path: Path) -> None:
    settings = load(tmp_path, '[sink.warehouse]\nurl = "postgresql+psycopg://u:hunter2@h/d"')
    name, sink = settings.stream_sink()
    assert isinstance(sink, SqlSinkSettings)
    assert (name, sink.location) == ("warehouse", "postgresql+psycopg://h/d")
    assert sink.url.get_secret_value() == "postgresql+psycopg://u:hunter2@h/d"


def test_secrets_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2\n", encoding="utf-8")
    path = str(tmp_path / "secret")
    settings = load(
        tmp_path,
        f'[cluster]\nusername = "u"\npassword_file = "{path}"\n[kafka]\n"ssl.key.password_file" = "{path}"\n',
        KAFKA__SASL_PASSWORD_FILE=path,
        SINK__X__URL_FILE=path,
    )
    assert settings.cluster.password is not None
    assert settings.cluster.password.get_secret_value() == "hunter2"
    assert settings.kafka.reveal()["sasl.password"] == settings.kafka.reveal()["ssl.key.password"] == "hunter2"
    assert isinstance(sink := settings.sink["x"], SqlSinkSettings)
    assert sink.url.get_secret_value() == "hunter2"


def test_log_tables_are_a_sink_of_a_cluster_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2\n", encoding="utf-8")
    text = '[sink.log]\ntype = "log-tables"\ncontact_points = ["db"]\nkeyspace = "{keyspace}_log"\nttl_seconds = 60\n'
    variables = {
        "SINK__LOG__USERNAME": "u",
        "SINK__LOG__PASSWORD_FILE": str(tmp_path / "secret"),
        "SINK__LOG__CONTACT_POINTS": "10.0.0.1,10.0.0.2",
    }
    name, sink = load(tmp_path, text, **variables).stream_sink()
    assert isinstance(sink, LogTablesSinkSettings)
    assert sink.password is not None
    assert (name, sink.password.get_secret_value(), sink.contact_points) == ("log", "hunter2", ("10.0.0.1", "10.0.0.2"))
    assert (sink.location, sink.keyspace, sink.ttl_seconds) == ("10.0.0.1:9042", "{keyspace}_log", 60)
    assert "hunter2" not in repr(sink)


def test_variables_have_neither_the_case_nor_the_hyphens_of_names(tmp_path: Path) -> None:
    """They set what the file, or the other program, spells with them, and nothing beside it."""
    text = """
        [stream]
        sink = "Warehouse"
        [sink.Warehouse]
        url = "sqlite:///a.db"
        [sink.lake]
        type = "iceberg"
        path = "/lake"
        catalog.type = "rest"
    """
    variables = {
        "SINK__WAREHOUSE__URL": "sqlite:///b.db",
        "SINK__LAKE__CATALOG__S3_ACCESS_KEY_ID": "id",
        "STREAM__SPARK__SPARK_DYNAMICALLOCATION_ENABLED": "true",
        "STREAM__SPARK__SPARK_KUBERNETES_EXECUTOR_PODTEMPLATEFILE": "/pod.yaml",
        "KAFKA__SASL_OAUTHBEARER_ASSERTION_FILE": "/nope",
    }
    settings = load(tmp_path, text, **variables)
    assert list(settings.sink) == ["Warehouse", "lake"]
    assert settings.stream_sink()[1].location == "sqlite:///b.db"
    lake = settings.sink["lake"]
    assert isinstance(lake, IcebergSinkSettings)
    assert lake.catalog.reveal() == {"type": "rest", "s3.access-key-id": "id"}
    assert settings.stream.spark.reveal() == {
        "spark.dynamicAllocation.enabled": "true",
        "spark.kubernetes.executor.podTemplateFile": "/pod.yaml",
    }
    assert settings.kafka.reveal()["sasl.oauthbearer.assertion.file"] == "/nope"
    with pytest.raises(SettingsError, match=r"TAILRACE_SINK__WAREHOUSE__TABEL: unknown setting sink\.Warehouse\.tabel"):
        load(tmp_path, text, SINK__WAREHOUSE__TABEL="x")


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ("kafka", "sasl.oauthbearer.assertion.file"),
        ("stream.spark", "spark.scheduler.allocation.file"),
        ("stream.spark", "spark.authenticate.secret.file"),
    ],
)
def test_names_of_other_programs_that_end_in_file_are_their_own(tmp_path: Path, section: str, name: str) -> None:
    settings = load(tmp_path, f'[{section}]\n"{name}" = "/nope"')
    properties = settings.kafka if section == "kafka" else settings.stream.spark
    assert properties.reveal()[name] == "/nope"


def test_secrets_are_never_shown(tmp_path: Path) -> None:
    text = """
        [cluster]
        username = "u"
        password = "hunter2"
        [kafka]
        "sasl.password" = "hunter2"
        "sasl.oauthbearer.client.secret" = "hunter2"
        "ssl.key.pem" = "hunter2"
        [stream.spark]
        "spark.hadoop.fs.s3a.secret.key" = "hunter2"
        [stream.kafka]
        "sasl.jaas.config" = "x password=hunter2;"
        [schemas.registry]
        "basic.auth.user.info" = "u:hunter2"
        [sink.x]
        url = "postgresql://u:hunter2@h/d"
    """
    settings = load(tmp_path, text)
    for shown in (repr(settings), str(settings), repr(settings.model_dump()), settings.model_dump_json()):
        assert "hunter2" not in shown


@pytest.mark.parametrize(
    ("text", "environ", "message"),
    [
        ("[clutser]", {}, "t.toml: unknown setting clutser; did you mean cluster?"),
        ("", {"CLUSTER__PROT": "1"}, "TAILRACE_CLUSTER__PROT: unknown setting cluster.prot; did you mean cluster.port"),
        ("[tables]\nzzzz = 1", {}, "unknown setting tables.zzzz; valid names of tables: exclude, include"),
        ("[sink.a]\nurll = ''", {}, "t.toml: unknown setting sink.a.urll; did you mean sink.a.url?"),
        ("", {"KAFKA_SASL_PASSWORD": "hunter2"}, "two underscores follow a section: TAILRACE_KAFKA__SASL_PASSWORD"),
        ("[cluster]\nport = 0", {}, "t.toml: cluster.port must be greater than or equal to 1, not 0"),
        ("", {"CLUSTER__PORT": "x"}, "TAILRACE_CLUSTER__PORT: cluster.port must be a valid integer, not 'x'"),
        ("[cluster]\ncontact_points = []", {}, "cluster.contact_points"),
        ("[agent]\npublish = 'dc:'", {}, """agent.publish must be "all" or "dc:NAME,NAME", not 'dc:'"""),
        ("[agent]\ndelivery = 'once'", {}, "must be 'exactly-once' or 'at-least-once', not 'once'"),
        ("[agent]\nsegment_key = 'hunter2'\nkeystore = 'x'", {}, "agent: segment_key and keystore are both given"),
        ("[agent]\nkeystore = 'x'", {}, "t.toml: agent: keystore needs keystore_password or keystore_password_file"),
        ("[agent]\nkeystore_password = 'hunter2'", {}, "t.toml: agent: keystore_password needs keystore"),
        ("", {"AGENT__KEYSTORE_KEY_PASSWORD": "hunter2"}, "keystore_password needs keystore"),
        ("[agent]\nsegment_key = 2", {}, "t.toml: agent.segment_key must be a valid string"),
        ("[topics]\nprefix = '.a'", {}, "topics.prefix may have letters, digits, '.', '_' and '-', not '.' first"),
        ("[tables]\ninclude = ['shop']", {}, 'tables.include pattern "shop" must have the form keyspace.table'),
        ("[cluster]\nusername = 'u'", {}, "t.toml: cluster: username needs password or password_file"),
        ("[cluster]\npassword = 'hunter2'", {}, "t.toml: cluster: password needs username"),
        ("[cluster]\ntls_ca_file = 'x'", {}, "set tls = true"),
        ("[kafka]\n'transactional.id' = 'x'", {}, "t.toml: kafka: transactional.id is not yours to set"),
        ("[kafka]\n'sasl.password_file' = '/nope'", {}, "cannot read /nope: No such file or directory"),
        ("[kafka]\nx_file = 'a'\nx = 1", {}, "x and x_file are both given: keep one"),
        ("[tables]\ninclude = 'odd.*'", {}, """tables.include must be a list, such as ["odd.*"], not 'odd.*'"""),
        ("", {"TABLES__INCLUDE": "[odd.*"}, """TAILRACE_TABLES__INCLUDE: tables.include must be a list, such as"""),
        ("cluster = 5", {}, "t.toml: cluster must be a table, [cluster]"),
        ("sink = 5", {}, "t.toml: sink must be a table, [sink]"),
        ("[kafka]\nx = [1]", {}, "kafka: x must be a string, number or boolean"),
        ("[kafka]\nbootstrap_servers = 'a:1'", {}, 'no such property; did you mean "bootstrap.servers"?'),
        ("[kafka]\n'sasl.passwrd_file' = '/dev/null'", {}, 'did you mean "sasl.password"?'),
        ("[kafka]\n'error_cb' = 'x'", {}, "t.toml: kafka.error_cb: librdkafka has no such property"),
        ("[kafka]\n'metadata.broker.list' = 'x'", {}, "is not yours to set: set bootstrap.servers"),
        ("", {"KAFKA__BOOTSTRAP_SERVER": "a:1"}, "TAILRACE_KAFKA__BOOTSTRAP_SERVER: kafka.bootstrap.server: "),
        ("[kafka]\n'security.protocol' = 'SASL'", {}, 't.toml: kafka.security.protocol: Invalid value "SASL" for'),
        ("[sink.a]\ntype = 'kafka'\nkafka.retries = -1", {}, "t.toml: sink.a.kafka.retries: Configuration property"),
        ("[schemas.registry]\n'basic.auth.user_info' = 'u:hunter2'", {}, "the registry's client has no such property;"),
        ("[sink.a]\ntype = 'kafka'\nregistry.urll = 'x'", {}, "sink.a.registry.urll: the registry's client has no"),
        ("[stream.kafka]\nssl_truststore_location = 'x'", {}, "Java's Kafka consumer has no such property; did you"),
        ("[stream.kafka]\n'auto.offset.reset' = 'none'", {}, "is not yours to set: set stream.starting"),
        ("[stream.spark]\n'spark.executor.memroy' = '4g'", {}, "stream.spark.spark.executor.memroy: did you mean"),
        ("[stream.spark]\nmaster = 'local'", {}, 'Spark\'s properties begin with spark.; did you mean "spark.master"?'),
        (
            "[sink.a]\ntype = 'iceberg'\npath = '/x'\ncatalog = { type = 'rest', credentials = 'u' }",
            {},
            't.toml: sink.a.catalog.credentials: did you mean "credential"?',
        ),
        ("kafka = 1", {}, "must be a table of names and values"),
        ("cluster = 1", {"CLUSTER__PORT": "1"}, "TAILRACE_CLUSTER__PORT: cluster is a value in the file, not a table"),
        ("[stream]\nsink = 'x'", {}, 'stream.sink = "x" has no [sink.x]; the sinks are: local'),
        ("[sink.a]\ntype = 'log-tables'\nkeyspace = '{table}'", {}, "t.toml: sink.a.keyspace may contain {keyspace}"),
        ("", {"SINK__A__TYPE": "log-tables", "SINK__A__PORT": "x"}, "TAILRACE_SINK__A__PORT: sink.a.port must be"),
        ("[sink.a]\ntype = 'log-tables'\nusername = 'u'", {}, "t.toml: sink.a: username needs password"),
        ("[sink.a]\ntype = 'http'\nurl = 'https://h/hunter2/{x}'", {}, "t.toml: sink.a.url may contain {keyspace}, "),
        ("[sink.a]\ntype = 'opensearch'\nurl = 'https://h?k=hunter2'", {}, "sink.a.url must end behind host, port and"),
        ("[sink.a]\ntype = 'hudi'", {}, 't.toml: sink.a: type must be "sql", "cassandra"'),
        ("[sink.a]\ntable = '{x}'", {}, "sink.a.table may contain {keyspace} and {table}"),
        ("[sink.a]\ntable = 'x'", {}, "sink.a.table must contain {table}"),
        ("[cluster", {}, "t.toml: not TOML: "),
        ("[agent]\nhealth_address = '0.0.0.0:8083'", {}, "or an IP address; its port is set by health_port"),
        ("[stream]\nmetrics_address = '[::1]:1'", {}, "stream.metrics_address must be a host name or an IP address;"),
    ],
)
def test_complaints(tmp_path: Path, text: str, environ: dict[str, str], message: str) -> None:
    said = complaint(tmp_path, text, **environ)
    assert message in said
    assert "\n" not in said
    assert "hunter2" not in said


@pytest.mark.promise("settings.wrong-property")
def test_each_wrong_property_has_its_line(tmp_path: Path) -> None:
    text = "[kafka]\nbootstrap_servers = 'a:1'\n'sasl.passwrd' = 'hunter2'\n[stream.spark]\nx = 1\n[cluster]\nport = 0"
    lines = complaint(tmp_path, text).splitlines()
    assert [line.split(":")[1] for line in lines] == [
        " cluster.port must be greater than or equal to 1, not 0",
        " kafka.bootstrap_servers",
        " kafka.sasl.passwrd",
        " stream.spark.x",
    ]
    assert "hunter2" not in "".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        "[kafka]\n'log_level' = 6\nretries = 5\n'group.id' = 'x'\n'socket.keepalive.enable' = true",
        "[kafka]\n'ssl.ca.location' = '/nowhere'\n'security.protocol' = 'SASL_SSL'\n'sasl.mechanism' = 'SCRAM-SHA-512'",
        "[stream.kafka]\n'sasl.login.callback.handler.class' = 'com.example.Login'\n'login.region' = 'x'",
        "[stream.spark]\n'spark.hadoop.fs.s3a.endpoint' = 'x'\n'spark.openlineage.transport.type' = 'http'",
        "[stream.spark]\n'spark.sql.catalog.lake' = 'x'\n'spark.kubernetes.driver.label.a' = 'x'\n'spark.ui.port' = 1",
        "[sink.a]\ntype = 'iceberg'\npath = '/x'\ncatalog = { type = 'rest', uri = 'x', 'header.X-Realm' = 'y' }",
    ],
)
def test_properties_that_their_programs_know_pass(text: str, tmp_path: Path) -> None:
    load(tmp_path, text)


def test_a_missing_file_says_where_to_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no such file; `tailrace init` writes one"):
        load_settings(tmp_path / "none.toml", {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TAILRACE_COMPILE", "1"),
        ("TAILRACE_MAVEN_REPOSITORY", "https://example.org"),
        ("TAILRACE_AGENT_SERVICE_HOST", "10.0.0.1"),
        ("TAILRACE_AGENT_PORT", "tcp://10.0.0.1:80"),
        ("TAILRACE_AGENT_PORT_80_TCP_ADDR", "10.0.0.1"),
        ("PATH", "/bin"),
    ],
)
def test_variables_that_are_no_settings(name: str, value: str) -> None:
    assert load_settings(None, {name: value}) == Settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('on_release = "archive"', 't.toml: agent: on_release = "archive" needs archive_directory'),
        ('cdc_raw_directory = "/x"\nspool_directory = "/x/y"', "agent: spool_directory is in cdc_raw_directory"),
        ('cdc_raw_directory = "/x"\narchive_directory = "/x"', "agent: archive_directory is in cdc_raw_directory"),
        ("pressure_percent = 100", "agent.pressure_percent must be less than or equal to 99"),
    ],
)
def test_places_that_cannot_be(tmp_path: Path, text: str, message: str) -> None:
    """What is moved there would count as before."""
    assert message in complaint(tmp_path, f"[agent]\n{text}")


def test_one_sink_of_several(tmp_path: Path) -> None:
    settings = load(tmp_path, "[stream]\nsink = 'a'\n[sink.a]\n[sink.b]\ntable = 'x_{table}'").with_sink("b")
    assert settings.stream_sink() == ("b", settings.sink["b"])
    assert list(settings.sink) == ["b"]
    with pytest.raises(SettingsError, match=r"--sink c: there is no \[sink\.c\]; the sinks are: b"):
        settings.with_sink("c")


def test_publish() -> None:
    assert Settings().agent.publishes("anywhere")
    some = load_settings(None, {"TAILRACE_AGENT__PUBLISH": "dc:a,b"}).agent
    assert [some.publishes(name) for name in ("a", "b", "c", "dc:a")] == [True, True, False, False]


def test_the_sample_is_what_the_model_says() -> None:
    assert (ROOT / "tailrace.toml").read_text(encoding="utf-8") == render_sample(), "run `make generated`"


def test_the_sample_loads_as_the_defaults() -> None:
    assert load_settings(ROOT / "tailrace.toml", {}) == Settings()


def below(section: type[Section]) -> list[type[Section]]:
    """All sections that are one of this kind, itself without."""
    return [descendant for child in section.__subclasses__() for descendant in (child, *below(child))]


MODELS = [Settings, *dict.fromkeys([*below(Section), SnapshotSettings])]  # some only after an import


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_setting_has_a_description_a_default_or_an_example_and_valid_ones(model: type[BaseModel]) -> None:
    for name, field in model.model_fields.items():
        assert field.description, name
        assert field.examples or not field.is_required(), name
        assert field.annotation is not None
        for example in field.examples or ():
            TypeAdapter(field.annotation).validate_python(example)


def test_commented_settings_of_the_sample_are_toml() -> None:
    lines = [line.removeprefix("# ") for line in render_sample().splitlines() if " = " in line]
    settings = [line for line in lines if line.split(" = ")[0].strip('"').replace(".", "").replace("_", "").isalpha()]
    assert len(settings) > 50
    for line in settings:
        tomllib.loads(line)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[schemas]\nstore = "registry"\n', r"schemas\.registry\.url"),
        ('[schemas.registry]\nurl = "https://user:geheim@host"\n', r"basic\.auth\.user\.info_file"),
    ],
)
def test_a_registry_that_is_named_wrongly(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=says) as caught:
        load(tmp_path, text)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ({"authentication": False, "address": "0.0.0.0"}, "is for a loopback address alone, and 0.0.0.0 is none"),  # noqa: S104 - it is refused
        ({"tls_key_file": "key.pem"}, "given together"),
        ({"lease_seconds": 1}, "server.lease_seconds"),
    ],
)
def test_a_server_that_would_be_open_to_all_is_refused(server: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(words)):
        settings_from({"server": server}, "test")
    assert not settings_from({"server": {"authentication": False, "address": "::1"}}, "test").server.authentication
