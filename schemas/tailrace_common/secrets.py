"""What is secret among settings, and text with the secrets taken out."""

from __future__ import annotations

import re
from typing import Final

_SECRET_NAME: Final = re.compile(
    r"password|passwd|passphrase|secret|credential|jaas|key[._]pem$|keystore[._]key$|user[._]info$|auth[._]token$|(access|segment|signing)[._]key$|bearer[._]token$|session[._]token$",
    re.IGNORECASE,
)
_URL_PASSWORD: Final = re.compile(r"(?P<head>[a-zA-Z][\w+.-]*://[^/\s@:]*:)[^/\s]*(?=@)")
_ASSIGNED: Final = re.compile(
    r"""(?P<head>[\w.]*(?:password|passwd|secret)[\w.]*["']?\s*[=:]\s*["']?)[^\s"',;]+""", re.IGNORECASE
)
REDACTED: Final = "**********"


def is_secret_name(name: str) -> bool:
    """Whether a setting of this name (`sasl.password`, `spark.hadoop.fs.s3a.secret.key`) must never be shown."""
    return _SECRET_NAME.search(name) is not None


def redact(text: str) -> str:
    """`text` with the passwords of URLs (`user:password@`) and of `password=...` assignments replaced by stars."""
    text = _URL_PASSWORD.sub(rf"\g<head>{REDACTED}", text)
    return _ASSIGNED.sub(rf"\g<head>{REDACTED}", text)
