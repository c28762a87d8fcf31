"""What every codec is: Cassandra's bytes of one type to a plain value and back."""

from __future__ import annotations

from tailrace_schemas.errors import CorruptError, DecodeError, TruncatedError


class Codec:
    """The two ways between the serialized bytes of one CQL type and its plain value (docs/contracts.md section 3).

    `decode` takes all of `data` for one value; it raises TruncatedError or CorruptError where the bytes are none, and
    nothing else. It gives None for zero bytes where the type has no empty value of its own (text, ascii, blob and
    custom types have one). `encode` gives the bytes that Cassandra would write, b"" for that None, and raises
    ValueError for what is no value of the type. `exact` says that encode(decode(x)) == x for every x that decode
    accepts, so that callers can skip comparing.
    """

    exact: bool

    def __init__(self, exact: bool) -> None:
        self.exact = exact

    def decode(self, data: bytes) -> object:
        """The value of all of `data`."""
        raise NotImplementedError

    def encode(self, value: object) -> bytes:
        """The bytes of a value."""
        raise NotImplementedError

    def gives_back(self, data: bytes, value: object) -> bool:
        """Whether `encode` gives `data` of the value that `decode` gave."""
        return self.exact or self.encode(value) == data


def wrong_size(kind: str, size: int, actual: int) -> DecodeError:
    """The error of a value that is not `size` bytes long."""
    rule = f"{kind} has {size} bytes, not {actual}"
    return TruncatedError(rule) if actual < size else CorruptError(rule)


def wrong_value(kind: str, accepted: str, value: object) -> ValueError:
    """The error of an object that is no value of the type; it names the object's class, never its content."""
    return ValueError(f"{kind} takes {accepted}, not this {type(value).__name__}")
