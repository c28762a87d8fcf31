"""The settings of lineage: events of OpenLineage about streams, their tables and where these come from."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator

from tailrace_common.secrets import carries_user
from tailrace_common.sections.section import Seconds, Section


class LineageSettings(Section):
    """Events of OpenLineage about streams. Needs tailrace[openlineage]. docs/lineage.md"""

    transport: Literal["none", "http", "file", "console"] = Field(
        default="none",
        description='How events are sent: "http", to `url`; "file", a line of JSON each, to `file`; "console", to the '
        'log; "none": there are none',
    )
    url: str | None = Field(
        default=None, examples=["http://127.0.0.1:5000"], description="Server that takes events, such as Marquez"
    )
    endpoint: str = Field(default="api/v1/lineage", description="Path of that server")
    api_key: SecretStr | None = Field(default=None, examples=["..."], description="Bearer token for that server")
    api_key_file: Path | None = Field(
        default=None, examples=["/run/secrets/lineage-key"], description="File that holds it, instead of `api_key`"
    )
    file: Path | None = Field(
        default=None, examples=["/var/lib/tailrace/lineage.jsonl"], description="File that events are appended to"
    )
    namespace: str = Field(default="tailrace", description="Namespace of the streams, which are jobs there")
    cassandra: str | None = Field(
        default=None,
        examples=["cassandra1.example.org:9042"],
        description="HOST:PORT that names the source's cluster. Unset: the first of cluster.contact_points, if these "
        "are set; else Kafka's topics alone are inputs",
    )
    running_seconds: Seconds = Field(
        default=60, description="The least time between two events of a stream that runs, unless it meets a new table"
    )

    @model_validator(mode="after")
    def _check_transport(self) -> Self:
        if self.transport == "http":
            parts = urlsplit(self.url or "")
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise ValueError('transport = "http" needs url, such as http://127.0.0.1:5000')
            if carries_user(self.url or ""):
                raise ValueError("url must be without user and password: give api_key_file")
        if self.transport == "file" and self.file is None:
            raise ValueError('transport = "file" needs file')
        return self
