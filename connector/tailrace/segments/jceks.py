"""Java's JCEKS and JKS keystores: the secret keys of the former, which are Java objects, serialized."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tailrace.segments.stored_keys import OCTETS, StoredKey, WrongPasswordError, sequence, triple_des_cbc

JCEKS: Final = b"\xce\xce\xce\xce"
JKS: Final = b"\xfe\xed\xfe\xed"
_PRIVATE_KEY, _CERTIFICATE, _SECRET_KEY = 1, 2, 3
_SALT: Final = b"Mighty Aphrodite"
_DIGEST_SIZE: Final = 20
_CIPHER: Final = "PBEWithMD5AndTripleDES"
_MOST_ROUNDS: Final = 5_000_000
"""The most rounds of MD5 that Java accepts (KeyProtector.MAX_ITERATION_COUNT)."""
MAGIC: Final = b"\xac\xed\x00\x05"
_NULL, _REFERENCE, _CLASS, _OBJECT, _STRING, _ARRAY, _BLOCK, _END, _ENUM = (
    0x70,
    0x71,
    0x72,
    0x73,
    0x74,
    0x75,
    0x77,
    0x78,
    0x7E,
)
_FIRST_HANDLE: Final = 0x7E0000
_WRITE_METHOD, _SERIALIZABLE = 0x01, 0x02
# Type codes of primitive fields -> their size.
_PRIMITIVES: Final = {"B": 1, "C": 2, "D": 8, "F": 4, "I": 4, "J": 8, "S": 2, "Z": 1}
_DEPTH: Final = 30
"""How deep objects nest at most. A key takes five; a damaged stream must not end the stack."""


def read_jceks(data: bytes, password: str) -> list[StoredKey]:
    """The secret keys of the keystore, still encrypted. Raises WrongPasswordError, and ValueError for other bytes."""
    body, digest = data[:-_DIGEST_SIZE], data[-_DIGEST_SIZE:]
    source = Input(body)
    if source.take(4) not in (JCEKS, JKS) or (version := source.number(4)) not in (1, 2):
        raise ValueError("neither JCEKS nor JKS")
    expected = hashlib.sha1(_utf16(password) + _SALT + body, usedforsecurity=False).digest()
    if not hmac.compare_digest(digest, expected):
        raise WrongPasswordError("the keystore's checksum is another one")
    entries = [_entry(source, version) for _ in range(source.number(4))]
    if source.offset != len(body):
        raise ValueError("bytes after the last entry")
    return [entry for entry in entries if entry is not None]


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


def _entry(source: Input, version: int) -> StoredKey | None:
    """A secret key; None for entries of other kinds."""
    kind, alias = source.number(4), source.text()
    source.take(8)  # when it was made
    if kind == _SECRET_KEY:
        return StoredKey(alias, partial(_unsealed, read_object(source)))
    if kind == _PRIVATE_KEY:
        source.take(source.number(4))
        for _ in range(source.number(4)):
            _skip_certificate(source, version)
    elif kind == _CERTIFICATE:
        _skip_certificate(source, version)
    else:
        raise ValueError(f"an entry of kind {kind}")
    return None


def _skip_certificate(source: Input, version: int) -> None:
    if version == 2:
        source.text()  # its type
    source.take(source.number(4))


def _unsealed(sealed: JavaObject, password: str) -> bytes:
    """The key in a javax.crypto.SealedObject. Raises ValueError."""
    parameters, text = sealed.fields.get("encodedParams"), sealed.fields.get("encryptedContent")
    if sealed.fields.get("sealAlg") != _CIPHER or not isinstance(parameters, bytes) or not isinstance(text, bytes):
        raise ValueError(f"a key that is not sealed by {_CIPHER}")
    salt, rounds = sequence(parameters)
    key, iv = _derived(password.encode("ascii"), salt.expect(OCTETS), rounds.integer())
    opened = key_fields(read_object(Input(triple_des_cbc(key, iv, text))))
    if opened is None:
        raise ValueError("what was sealed is no secret key")
    return opened


def _derived(password: bytes, salt: bytes, rounds: int) -> tuple[bytes, bytes]:
    """Key and vector (PBES1Core.deriveCipherKey): each half of the salt is hashed with the password by itself."""
    if len(salt) != 8 or not 0 < rounds <= _MOST_ROUNDS:
        raise ValueError("a salt or a number of rounds that Java does not write")
    halves = [salt[:4], salt[4:]]
    if halves[0] == halves[1]:
        halves[0] = halves[0][::-1]
    digests = b""
    for half in halves:
        digest = half
        for _ in range(rounds):
            digest = hashlib.md5(digest + password, usedforsecurity=False).digest()
        digests += digest
    return digests[:24], digests[24:]


@dataclass(slots=True)
class Input:
    """Bytes that are read in order, big-endian as Java writes them. Raises ValueError where they end."""

    data: bytes
    offset: int = 0

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        end = self.offset + size
        if end > len(self.data):
            raise ValueError(f"{size} bytes expected at {self.offset}, {len(self.data) - self.offset} left")
        start, self.offset = self.offset, end
        return self.data[start:end]

    def number(self, size: int) -> int:
        """An unsigned number of `size` bytes."""
        return int.from_bytes(self.take(size), "big")

    def text(self) -> str:
        """DataOutput.writeUTF's text. Characters outside of Unicode's first plane come as surrogates."""
        return self.take(self.number(2)).replace(b"\xc0\x80", b"\x00").decode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class JavaClass:
    """A class's description: its serialized fields by name and type code, and what it extends."""

    name: str
    flags: int
    fields: tuple[tuple[str, str], ...]
    parent: JavaClass | None


Value = object
"""None, str, bytes (byte[]), a list (another array), JavaClass, or JavaObject."""


@dataclass(slots=True)
class JavaObject:
    """An object: the name of its class, and the values of its fields."""

    name: str
    fields: dict[str, Value] = field(default_factory=dict)


def read_object(source: Input) -> JavaObject:
    """The object of a stream that begins here; the source is left after it. Raises ValueError for anything else."""
    if source.take(len(MAGIC)) != MAGIC:
        raise ValueError("no stream of Java objects")
    value = _Stream(source).value()
    if not isinstance(value, JavaObject):
        raise ValueError("the stream has no object")
    return value


@dataclass(slots=True)
class _Stream:
    source: Input
    handles: list[Value] = field(default_factory=list)
    depth: int = 0

    def value(self) -> Value:
        self.depth += 1
        if self.depth > _DEPTH:
            raise ValueError("objects nest too deep")
        value = self._value(self.source.number(1))
        self.depth -= 1
        return value

    def _value(self, kind: int) -> Value:
        if kind == _NULL:
            return None
        if kind == _REFERENCE:
            return self._referenced(self.source.number(4) - _FIRST_HANDLE)
        if kind == _STRING:
            self.handles.append(text := self.source.text())
            return text
        readers = {_CLASS: self._class, _OBJECT: self._object, _ARRAY: self._array, _ENUM: self._constant}
        if kind not in readers:
            raise ValueError(f"type code {kind:#x}")
        return readers[kind]()

    def _referenced(self, handle: int) -> Value:
        if not 0 <= handle < len(self.handles):
            raise ValueError(f"handle {handle} of {len(self.handles)}")
        return self.handles[handle]

    def _class(self) -> JavaClass:
        name = self.source.text()
        self.source.take(8)  # serialVersionUID
        handle = len(self.handles)
        self.handles.append(None)
        flags = self.source.number(1)
        fields = tuple(self._field() for _ in range(self.source.number(2)))
        self._annotation()
        parent = self.value()
        if parent is not None and not isinstance(parent, JavaClass):
            raise ValueError("a class extends what is no class")
        described = JavaClass(name, flags, fields, parent)
        self.handles[handle] = described
        return described

    def _field(self) -> tuple[str, str]:
        code = chr(self.source.number(1))
        name = self.source.text()
        if code in "[L":
            self.value()  # the name of its type
        elif code not in _PRIMITIVES:
            raise ValueError(f"a field of type {code!r}")
        return name, code

    def _described(self) -> JavaClass:
        described = self.value()
        if not isinstance(described, JavaClass):
            raise ValueError("no class where one must be")
        return described

    def _object(self) -> JavaObject:
        described = self._described()
        self.handles.append(instance := JavaObject(described.name))
        lineage, ancestor = [described], described.parent
        while ancestor is not None:
            lineage.append(ancestor)
            ancestor = ancestor.parent
        for level in reversed(lineage):
            if not level.flags & _SERIALIZABLE:
                raise ValueError(f"{level.name} is written in a way of its own")
            for name, code in level.fields:
                instance.fields[name] = self._field_value(code)
            if level.flags & _WRITE_METHOD:
                self._annotation()
        return instance

    def _field_value(self, code: str) -> Value:
        return self.source.take(_PRIMITIVES[code]) if code in _PRIMITIVES else self.value()

    def _array(self) -> Value:
        described = self._described()
        handle = len(self.handles)
        self.handles.append(None)
        size, code = self.source.number(4), described.name[1:2]
        if size > len(self.source.data):
            raise ValueError(f"an array of {size} values")
        value: Value = self.source.take(size) if code == "B" else [self._field_value(code) for _ in range(size)]
        self.handles[handle] = value
        return value

    def _constant(self) -> Value:
        self._described()
        handle = len(self.handles)
        self.handles.append(None)
        self.handles[handle] = name = self.value()
        return name

    def _annotation(self) -> None:
        """What a class or an object writes behind its fields, up to its end mark."""
        while (kind := self.source.number(1)) != _END:
            if kind == _BLOCK:
                self.source.take(self.source.number(1))
            else:
                self._value(kind)


def key_fields(key: JavaObject) -> bytes | None:
    """The encoded key of a serialized SecretKeySpec (`key`) or KeyRep (`encoded`), None of another class."""
    encoded = key.fields.get(
        {"javax.crypto.spec.SecretKeySpec": "key", "java.security.KeyRep": "encoded"}.get(key.name, "")
    )
    return encoded if isinstance(encoded, bytes) else None
