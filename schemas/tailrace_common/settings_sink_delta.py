"""The section of a sink that writes Delta tables."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tailrace_common.settings_s3 import StoredSettings
from tailrace_common.settings_section import Positive


class DeltaSinkSettings(StoredSettings):
    """A Delta table for each source table, on local disks or S3: docs/sinks/delta.md."""

    type: Literal["delta"] = Field(default="delta", description="What kind of sink this is")
    mode: Literal["history"] = Field(default="history", description='"history": each change is a row')
    file_mebibytes: Positive = Field(default=128, description="A file is ended at about this size")
