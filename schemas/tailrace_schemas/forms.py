"""The forms that values may have in an agent's Avro, where there is more than one (docs/contracts.md section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class ValueForms:
    """The settings of [avro]. A schema says by itself which forms its values have, so that readers need no settings."""

    timestamps: Literal["plain", "logical"] = "plain"
    uuids: Literal["string", "fixed"] = "string"
    decimals: Literal["string", "bytes"] = "string"


PLAIN_FORMS: Final = ValueForms()
