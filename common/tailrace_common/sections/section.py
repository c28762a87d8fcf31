"""One table of the settings file: what all of them have in common."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, model_validator

from tailrace_common.properties.passthrough import read_secret_file

Port = Annotated[int, Field(ge=1, le=65535)]
PortOrNone = Annotated[int, Field(ge=0, le=65535)]
"""0 for none."""
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]
EXISTING_ROWS: Final = "initial"
"""What is done with rows that tables have already where nobody says: of streams, and of new subscriptions."""
DAY_SECONDS: Final = 86_400
MergeHorizon = Annotated[
    int,
    Field(
        ge=0,
        description="Deletions are forgotten so long after they were written and came; older changes then go to dead "
        "letters. At least the tables' gc_grace_seconds and the topics' retention; 0: never",
    ),
]
"""Seconds after which a store that follows rows forgets deletions."""


def _without_port(address: str, info: ValidationInfo) -> str:
    """The address. Raises ValueError for HOST:PORT: the port has a setting of its own."""
    try:
        ip_address(address)
    except ValueError:
        if ":" in address:
            port_setting = (info.field_name or "").replace("address", "port")
            raise ValueError(f"must be a host name or an IP address; its port is set by {port_setting}") from None
    return address


ListenAddress = Annotated[str, AfterValidator(_without_port)]
"""A host name or an IP address to listen on, without a port."""


class Section(BaseModel):
    """One table of the file: immutable, without unknown names. `NAME_file` of a secret is read into NAME."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _read_secret_files(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        values = dict(data)
        for name, field in cls.model_fields.items():
            path = values.get(f"{name}_file")
            if field.annotation not in (SecretStr, SecretStr | None) or path is None:
                continue
            if values.get(name) is not None:
                raise ValueError(f"{name} and {name}_file are both given: keep one")
            values[name] = read_secret_file(path)
        return values


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
