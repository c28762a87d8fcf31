"""`tailrace` as another user: imports everything, gives root's rights away for good, then runs.

Run with a user id and a group id, then the program's own arguments. Imported first, because this interpreter and its
packages may stand where only root may read.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys

import tailrace
import tailrace_common
import tailrace_schemas
from tailrace.cli.main import run

_MORE = ("encodings.idna", "stringprep", "_strptime", "tailrace_spark.cli.check")


def _import_all() -> None:
    for package in (tailrace, tailrace_common, tailrace_schemas):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name != "tests.support.capture":
                importlib.import_module(module.name)
    for name in _MORE:
        importlib.import_module(name)


def _become(user: int, group: int) -> None:
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    if os.getresuid() != (user, user, user) or os.getresgid() != (group, group, group) or os.getgroups():
        sys.exit(f"could not become user {user}, group {group}")


if __name__ == "__main__":
    _import_all()
    _become(int(sys.argv.pop(1)), int(sys.argv.pop(1)))
    run()
