"""The Helm chart as `helm template` renders it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.integration.deploy.tools import run

CHART = Path(__file__).resolve().parents[3] / "deploy" / "helm" / "tailrace"
VERSIONS = ("1.25.0", "1.28.0", "1.31.0", "1.34.0", "1.37.0")


def rendered(folder: Path, values: str, version: str = VERSIONS[-1]) -> list[dict[str, Any]]:
    """The objects, which are left in objects.yaml of the folder too."""
    file = folder / "values.yaml"
    file.write_text(values)
    text = run("helm", "template", "t", str(CHART), "-n", "data", "-f", str(file), "--kube-version", version)
    (folder / "objects.yaml").write_text(text)
    return [document for document in yaml.safe_load_all(text) if document]
