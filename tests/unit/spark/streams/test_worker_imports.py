"""Importers of archives are forgotten and made again when they are needed."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest

from tailrace_spark.streams.worker_imports import begin_task


def test_what_an_archive_has_can_still_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "some.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("first_of_archive.py", "A = 1")
        file.writestr("second_of_archive.py", "B = 2")
    monkeypatch.setattr(sys, "path", [str(archive), *sys.path])
    try:
        assert importlib.import_module("first_of_archive").A == 1
        assert isinstance(sys.path_importer_cache[str(archive)], zipimporter)
        begin_task()
        assert not any(isinstance(one, zipimporter) for one in sys.path_importer_cache.values())
        importlib.invalidate_caches()
        assert importlib.import_module("second_of_archive").B == 2
    finally:
        begin_task()
        sys.modules.pop("first_of_archive", None)
        sys.modules.pop("second_of_archive", None)
