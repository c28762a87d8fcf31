"""Values that other processes take: Spark's executors get tables and changes pickled."""

from __future__ import annotations

import copyreg
from dataclasses import fields
from functools import partial
from typing import Any


def pickled_by_fields(*classes: type[Any]) -> None:
    """Have dataclasses pickled and copied by a call with their fields.

    Pickle makes an object without arguments and assigns its attributes then. A compiled class demands the arguments,
    and a frozen one refuses the assignments. mypyc's `serializable` would make each access of an attribute slower.
    """
    for cls in classes:
        copyreg.pickle(cls, partial(_call_with_fields, cls, tuple(field.name for field in fields(cls))))


def _call_with_fields(cls: type[Any], names: tuple[str, ...], value: object) -> tuple[Any, tuple[Any, ...]]:
    return _called, (cls, names, tuple(getattr(value, name) for name in names))


def _called(cls: type[Any], names: tuple[str, ...], values: tuple[Any, ...]) -> object:
    return cls(**dict(zip(names, values, strict=True)))
