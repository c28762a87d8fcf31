"""What is secret among settings, and text with the secrets taken out."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

_SECRET_NAME: Final = re.compile(
    r"password|passwd|passphrase|secret|credential|jaas|key[._]pem$|keystore[._]key$|user[._]info$|auth[._]token$|(access|segment|signing)[._]key$|bearer[._]token$|session[._]token$",
    re.IGNORECASE,
)
_URL_PASSWORD: Final = re.compile(r"(?P<head>[a-zA-Z][\w+.-]*://[^/\s@:]*:)[^/\s]*(?=@)")
_ASSIGNED: Final = re.compile(
    r"""(?P<head>[\w.]*(?:password|passwd|secret)[\w.]*["']?\s*[=:]\s*["']?)[^\s"',;]+""", re.IGNORECASE
)
_DATABASE: Final = re.compile(r"(?P<scheme>[\w+.-]+://)(?:[^:/@?]*(?::[^@]*)?@)?(?P<rest>[^?#]*)")
REDACTED: Final = "**********"


def origin(url: str) -> str:
    """Scheme, host and port of a URL, and nothing more: people put tokens into users, paths and queries."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        port = parts.port
    except ValueError:  # no number: somebody's password, for all we know
        port = None
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{'' if port is None else f':{port}'}"


def shown_database(url: str) -> str:
    """A database's URL for people: scheme, host, port and the database's name, or its file.

    Users and passwords end where SQLAlchemy has it: passwords may have slashes and question marks.
    """
    found = _DATABASE.match(url)
    if found is None:
        return REDACTED
    where, slash, name = found["rest"].partition("/")
    return found["scheme"] + where.rpartition("@")[2] + slash + name


def is_secret_name(name: str) -> bool:
    """Whether a setting of this name (`sasl.password`, `spark.hadoop.fs.s3a.secret.key`) must never be shown."""
    return _SECRET_NAME.search(name) is not None


def redact(text: str) -> str:
    """`text` with the passwords of URLs (`user:password@`) and of `password=...` assignments replaced by stars."""
    text = _URL_PASSWORD.sub(rf"\g<head>{REDACTED}", text)
    return _ASSIGNED.sub(rf"\g<head>{REDACTED}", text)
