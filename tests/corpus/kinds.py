"""Which kinds of statements and tables a random program may have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """Switches. `times`: USING TIMESTAMP; `ahead`: in the future too, where deletions leave little; `tied`: nearly all
    is written at a handful of microseconds side by side, none of them ahead; `sparing`: what deletes many rows at once
    is rare, so that rows are left; `apart`: no two USING TIMESTAMP of one microsecond; `expiries`: TTLs of seconds,
    those of hours are always there, but with `lasting`: no TTLs at all; `long_keys`: values in
    keys of thousands of bytes, which no index of an SQL database takes; `finite`: no NaN and no infinities, which
    MySQL has no values for; `lists`: lists that are not frozen, whose elements' places no snapshot tells.
    """

    counters: bool = True
    times: bool = True
    ahead: bool = True
    tied: bool = False
    sparing: bool = False
    apart: bool = False
    expiries: bool = True
    lasting: bool = False
    truncations: bool = False
    alterations: bool = True
    long_keys: bool = True
    finite: bool = False
    lists: bool = True

    def __post_init__(self) -> None:
        if self.tied and not self.times:
            raise ValueError("ties are made with USING TIMESTAMP")


EVERY_KIND = Kinds()
"""All that may be in one program."""
