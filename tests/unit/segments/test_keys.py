"""Keys of encrypted segments: every way to give them, and that none of them is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace.cli.main import complete
from tailrace.commitlog.blocks import NO_KEYS
from tailrace.segments.keys import KEY, KEY_PASSWORD, PASSWORD, keys_of, keys_of_settings
from tailrace_common.settings import AgentSettings
from tailrace_schemas.errors import SettingsError
from tests.unit.commitlog import recorded

STORE = recorded.ROOT / "keystores" / "cassandra.jceks"
OTHERS = recorded.ROOT / "keystores" / "key-password.jceks"
OPENS, OPENS_KEY, WRONG = "cassandra", "of the key", "wrong-and-secret"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (KEY, PASSWORD, KEY_PASSWORD):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("cassandra\nnot this line\n", encoding="utf-8")
    return path


def test_no_key_at_all() -> None:
    assert keys_of(None, None, None) is NO_KEYS


def test_a_raw_key_serves_every_alias() -> None:
    assert keys_of(recorded.KEY.hex().upper(), None, None).key("any") == recorded.KEY


@pytest.mark.parametrize("size", [0, 1, 15, 17, 20, 33])
def test_a_raw_key_of_another_size(size: int) -> None:
    with pytest.raises(SettingsError, match=f"--key: {size} bytes; AES takes 16, 24 or 32"):
        keys_of("ab" * size, None, None)


def test_a_raw_key_that_is_none_is_not_repeated() -> None:
    secret = "secret" * 6
    with pytest.raises(SettingsError, match="--key: not hexadecimal digits") as caught:
        keys_of(secret, None, None)
    assert secret not in str(caught.value)


def test_one_way_only(password_file: Path) -> None:
    with pytest.raises(SettingsError, match=rf"--key \(or {KEY}\) or --keystore, not both"):
        keys_of(recorded.KEY.hex(), STORE, password_file)


def test_a_keystore_without_its_password() -> None:
    with pytest.raises(SettingsError, match=rf"cassandra\.jceks: set {PASSWORD}, or give --keystore-password-file"):
        keys_of(None, STORE, None)


def test_a_password_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(SettingsError, match="not UTF-8"):
        keys_of(None, STORE, path)


@pytest.mark.slow
def test_a_keystore_with_the_password_of_a_file(password_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD, "the file wins")
    assert keys_of(None, STORE, password_file).key("testing:1") == recorded.KEY


@pytest.mark.slow
def test_a_keystore_with_the_passwords_of_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD, OPENS)
    monkeypatch.setenv(KEY_PASSWORD, OPENS_KEY)
    assert keys_of(None, OTHERS, None).key("testing:1") == recorded.KEY


def test_a_wrong_password_names_the_file_and_not_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD, WRONG)
    with pytest.raises(SettingsError, match=rf"--keystore {STORE}: .* a wrong password") as caught:
        keys_of(None, STORE, None)
    assert WRONG not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["inspect", "dump"])
def test_the_commands_take_the_key_from_their_environment(command: str, tmp_path: Path) -> None:
    (path,), schema = recorded.recorded("4.0-beta4/encrypted").unpack(tmp_path)
    words = [command, str(path), *(["--schema", str(schema)] if command == "dump" else [])]
    assert CliRunner().invoke(complete(), words).exit_code == 3
    answer = CliRunner(env={KEY: recorded.KEY.hex()}).invoke(complete(), words)
    assert answer.exit_code == 0
    assert recorded.KEY.hex() not in answer.output


@pytest.mark.slow
def test_the_help_does_not_show_a_key_that_is_set() -> None:
    for command in ("inspect", "dump"):
        answer = CliRunner(env={KEY: recorded.KEY.hex()}).invoke(complete(), [command, "--help"])
        assert answer.exit_code == 0
        assert recorded.KEY.hex() not in answer.output


def agent_settings(**values: object) -> AgentSettings:
    return AgentSettings.model_validate(values)


def test_the_agent_without_keys() -> None:
    assert keys_of_settings(AgentSettings()) is NO_KEYS


def test_the_agents_raw_key_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{recorded.KEY.hex()}\n", encoding="utf-8")
    assert keys_of_settings(agent_settings(segment_key_file=str(tmp_path / "key"))).key("any") == recorded.KEY


@pytest.mark.parametrize("digits", ["secret" * 6, "ab" * 15])
def test_an_agents_raw_key_that_is_none_is_not_repeated(digits: str) -> None:
    settings = agent_settings(segment_key=digits)
    with pytest.raises(SettingsError, match=r"agent\.segment_key: ") as caught:
        keys_of_settings(settings)
    assert digits not in str(caught.value) + repr(settings)


@pytest.mark.slow
def test_the_agents_keystore() -> None:
    with_own = agent_settings(keystore=OTHERS, keystore_password=OPENS, keystore_key_password=OPENS_KEY)
    for settings in (agent_settings(keystore=STORE, keystore_password=OPENS), with_own):
        assert keys_of_settings(settings).key("testing:1") == recorded.KEY


def test_an_agents_keystore_that_does_not_open_is_named_without_its_password(tmp_path: Path) -> None:
    wrong = agent_settings(keystore=STORE, keystore_password=WRONG)
    gone = agent_settings(keystore=tmp_path / "gone", keystore_password=WRONG)
    for settings, words in ((wrong, "a wrong password"), (gone, "cannot be read: No such file")):
        with pytest.raises(SettingsError, match=rf"agent\.keystore {settings.keystore}: .*{words}") as caught:
            keys_of_settings(settings)
        assert WRONG not in str(caught.value) + repr(settings)
