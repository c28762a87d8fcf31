"""Write the files of the tree that are made from the code, or with --check say which are not what the code says."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

import row_state_picture

from tailrace_common.settings.sample import render_sample

ROOT: Final = Path(__file__).resolve().parent.parent


def main() -> int:
    """Exit code: 1 when --check finds a difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    stale = 0
    made = {"tailrace.toml": render_sample(), "docs/row-state.svg": row_state_picture.picture()}
    for name, text in made.items():
        path = ROOT / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if check:
            sys.stderr.write(f"{name} is not what the code says: run `make generated`\n")
        else:
            path.write_text(text, encoding="utf-8")
            sys.stderr.write(f"{name} written\n")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
