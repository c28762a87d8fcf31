"""Kafka and Cassandra that demand credentials: TLS, SASL, client certificates, passwords, permissions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __all__ forgets them
    AclBinding,
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tailrace.local import CassandraSettings, KafkaSettings, LocalCassandra, LocalKafka
from tailrace.local.ports import free_port
from tests.services.certificates import Authority, Issued

_ADDRESS: Final = "127.0.0.1"
_LOGIN: Final = "listener.name.login"
_MUTUAL: Final = "listener.name.mutual"
_MODULE: Final = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True)
class Doors:
    """Where clients of the broker knock: `login` takes PLAIN and SCRAM-SHA-512 over TLS, `mutual` certificates."""

    login: str
    mutual: str


class SecuredKafka:
    """A broker with three doors: one for who sets it up (all is allowed there), and `doors`, with an authorizer.

    `passwords` are those of PLAIN and of SCRAM, by user; of a certificate, the common name is the user.
    """

    def __init__(self, directory: Path, authority: Authority, passwords: dict[str, str]) -> None:
        ports = [free_port(_ADDRESS) for _ in range(4)]
        self._passwords = passwords
        self.doors = Doors(*(f"{_ADDRESS}:{port}" for port in ports[2:]))
        properties = _properties(ports, authority, authority.issue("broker"), passwords)
        settings = KafkaSettings(port=ports[0], controller_port=ports[1], heap_mib=256, properties=properties)
        self.broker = LocalKafka(directory, settings)

    @property
    def admin(self) -> AdminClient:
        """A client that may do everything."""
        return AdminClient({"bootstrap.servers": self.broker.bootstrap})

    def allow(self, bindings: list[AclBinding]) -> None:
        """Add permissions."""
        admin = self.admin
        for future in admin.create_acls(bindings).values():
            future.result(60)

    def set_password(self, user: str, password: str) -> None:
        """A user's password for SCRAM-SHA-512; the user is made, where there is none."""
        admin = self.admin
        kind = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        wanted: list[Any] = [UserScramCredentialUpsertion(user, kind, password.encode())]
        for future in admin.alter_user_scram_credentials(wanted).values():
            future.result(60)

    def __enter__(self) -> Self:
        self.broker.start()
        for user, password in self._passwords.items():
            self.set_password(user, password)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.broker.stop()


def _properties(ports: list[int], authority: Authority, own: Issued, passwords: dict[str, str]) -> dict[str, str]:
    users = " ".join(f'user_{user}="{password}"' for user, password in passwords.items())
    doors = {"PLAINTEXT": ports[0], "CONTROLLER": ports[1], "LOGIN": ports[2], "MUTUAL": ports[3]}
    places = {name: f"{name}://{_ADDRESS}:{port}" for name, port in doors.items()}
    keys = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": own.certificate,
        "ssl.keystore.key": own.key,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.certificate,
    }
    return {
        "listeners": ",".join(places.values()),
        "advertised.listeners": ",".join(place for name, place in places.items() if name != "CONTROLLER"),
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,LOGIN:SASL_SSL,MUTUAL:SSL",
        **{f"{listener}.{name}": value for listener in (_LOGIN, _MUTUAL) for name, value in keys.items()},
        f"{_MUTUAL}.ssl.client.auth": "required",
        f"{_MUTUAL}.ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
        f"{_LOGIN}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        f"{_LOGIN}.plain.sasl.jaas.config": f"{_MODULE}.plain.PlainLoginModule required {users};",
        f"{_LOGIN}.scram-sha-512.sasl.jaas.config": f"{_MODULE}.scram.ScramLoginModule required;",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


class SecuredCassandra:
    """A node that lets in only who has a certificate and a password, and does only what it was granted."""

    def __init__(self, directory: Path, authority: Authority) -> None:
        own = authority.issue("node")
        encryption = {
            "enabled": True,
            "optional": False,
            "require_client_auth": True,
            "ssl_context_factory": {
                "class_name": "org.apache.cassandra.security.PEMBasedSslContextFactory",
                "parameters": {
                    "private_key": own.key + own.certificate,
                    "trusted_certificates": authority.certificate,
                },
            },
        }
        yaml = {
            "authenticator": "PasswordAuthenticator",
            "authorizer": "CassandraAuthorizer",
            "role_manager": "CassandraRoleManager",
            "client_encryption_options": encryption,
        }
        self.node = LocalCassandra(directory, CassandraSettings(heap_mib=384, yaml=yaml))
