"""What is secret among settings, and text with the secrets taken out."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from tailrace_schemas.errors import SettingsError

_SECRET_NAME: Final = re.compile(
    r"password|passwd|passphrase|secret|credential|jaas|key[._]pem$|keystore[._]key$|user[._]info$"
    r"|(access|segment|signing|private|storage|shared|session|encryption|service[._-]?account|api)[._-]?key$"
    # Azure: `fs.azure.account.key.ACCOUNT.dfs.core.windows.net`, `AccountKey`, `fs.azure.sas.CONTAINER.ACCOUNT...`
    r"|account[._-]?key([._-]|$)|shared[._-]?access|(^|[._-])sas([._-]|$)"
    r"|(auth|bearer|session|access|refresh|sas|delegation)[._-]?token$",
    re.IGNORECASE,
)
# What stands between `user:` and the last `@` of a URL. Digits in front of a slash, a blank or the end are a port. A
# password may have slashes, blanks and even quotes: the narrowest form that reaches an `@` is taken, and where a text
# leaves the choice, rather too much is hidden than too little. Another URL behind a separator ends it.
_PORT: Final = r"""(?!\d{1,5}(?:[/?#\s,;:)\]}"']|$))"""
_NEXT_URL: Final = r"""(?![\s,;"'(|][\w+.-]+://)"""
_URL_PASSWORD: Final = re.compile(
    r"(?P<head>(?<![\w+.-])[\w+.-]+://[^/\s@:]*:)"
    rf"""(?:{_PORT}(?:{_NEXT_URL}[^\n"])*@|(?:{_NEXT_URL}\S)*@|{_PORT}(?:{_NEXT_URL}[^\n])*@)"""
)
_NAMES: Final = (
    r"password|passwd|passphrase|secret|account[._-]?key|access[._-]?key|sas[._-]?token"
    r"|shared[._-]?access[._-]?signature"
)
_ASSIGNED: Final = re.compile(
    rf"""(?P<head>(?<![\w.-])[\w.-]*(?:{_NAMES})[\w.-]*["']?\s*[=:]\s*)"""
    r"""(?:(?P<quote>["'])(?:[^"'\\\n]|\\.|(?!(?P=quote))["'])*(?P=quote)|(?P<open>["'])[^\n]*|[^\s"',;]+)""",
    re.IGNORECASE,
)
# As clients quote a header that they refuse, such as one whose token ends with a blank.
_HEADER: Final = re.compile(
    r"""(?P<head>(?P<quote>["'])(?:Bearer|ApiKey|Basic) )(?:[^\n]*(?P=quote)|[^\n]*)""", re.IGNORECASE
)
_SIGNATURE: Final = re.compile(r"(?P<head>[?&;]sig=)[^&\s\"';,]+", re.IGNORECASE)
_DATABASE: Final = re.compile(r"(?P<scheme>[\w+.-]+://)(?P<user>[^:/@?]*(?::[^@]*)?@)?(?P<rest>[^?#]*)")
_USER: Final = re.compile(rf"://(?:[^/?#,]*@|[^/?#@:,\[\s]*:{_PORT}[^@]*@)")
REDACTED: Final = "**********"


def origin(url: str) -> str:
    """Scheme, host and port of a URL, and nothing more: people put tokens into users, paths and queries."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        port = parts.port
    except ValueError:  # no number: somebody's password, for all we know
        port = None
    if "@" in url and "@" not in parts.netloc and ":" in parts.netloc:
        # Perhaps the slash was the password's: then the host is the user, and the port the password's beginning.
        return f"{parts.scheme}://{REDACTED}"
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{'' if port is None else f':{port}'}"


def carries_user(url: str) -> bool:
    """Whether a URL, or one of several with commas, has a user or a password, however it is written."""
    return _USER.search(url) is not None


def shown_database(url: str) -> str:
    """A database's URL for people: scheme, host, port and the database's name, or its file.

    Users and passwords end where SQLAlchemy has it: passwords may have slashes and question marks. Where another `@`
    follows, the password was perhaps not quoted: what stands before it is hidden too.
    """
    match = _DATABASE.match(url)
    if match is None:
        return REDACTED
    rest = match["rest"].rpartition("@")[2] if match["user"] else match["rest"]
    authority, slash, name = rest.partition("/")
    return match["scheme"] + authority.rpartition("@")[2] + slash + name


def is_secret_name(name: str) -> bool:
    """Whether a setting of this name (`sasl.password`, `spark.hadoop.fs.s3a.secret.key`) must never be shown."""
    return _SECRET_NAME.search(name) is not None


def authorization(scheme: str, token: str, setting: str) -> dict[str, str]:
    """The header that has a token. Raises SettingsError, which begins with the setting, for what no header can have."""
    if not re.fullmatch("[!-~]+", token):
        raise SettingsError(f"{setting}: may have printable ASCII characters only, and no space")
    return {"Authorization": f"{scheme} {token}"}


def redact(text: str) -> str:
    """`text` with stars for the passwords of URLs (`user:password@`), what is assigned to a secret's name
    (`password=...`, `AccountKey=...`), and the signatures of Azure's shared access. And for headers that are quoted:
    `'Bearer ...'`.
    """
    text = _HEADER.sub(rf"\g<head>{REDACTED}\g<quote>", text)
    text = _URL_PASSWORD.sub(rf"\g<head>{REDACTED}@", text)
    text = _SIGNATURE.sub(rf"\g<head>{REDACTED}", text)
    return _ASSIGNED.sub(_stars, text)


def _stars(match: re.Match[str]) -> str:
    quote = match["quote"] or ""
    return f"{match['head']}{quote or match['open'] or ''}{REDACTED}{quote}"
