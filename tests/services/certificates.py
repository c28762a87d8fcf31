"""A certificate authority of the test's own, and what it issues: PEM text, as Kafka, Cassandra and clients take it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

_A_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its private key (PKCS 8), both PEM."""

    certificate: str
    key: str = field(repr=False)


class Authority:
    """Signs certificates for servers on loopback, and for clients by their common name."""

    def __init__(self, name: str = "test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        builder = _builder(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._certificate = builder.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())

    @property
    def certificate(self) -> str:
        """What whoever trusts this authority is given."""
        return self._certificate.public_bytes(Encoding.PEM).decode()

    def issue(self, name: str, password: str | None = None) -> Issued:
        """A certificate for CN=`name`, good for 127.0.0.1 and localhost; with a password, the key is encrypted."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        builder = _builder(_name(name), self._name, key.public_key())
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        own = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = builder.add_extension(own, critical=False).sign(self._key, hashes.SHA256())
        hidden: KeySerializationEncryption = NoEncryption()
        if password is not None:
            hidden = BestAvailableEncryption(password.encode())
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden).decode()
        return Issued(certificate.public_bytes(Encoding.PEM).decode(), text)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _A_DAY)
        .not_valid_after(now + _A_DAY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )
