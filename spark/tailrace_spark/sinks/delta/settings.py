"""The section of a sink that writes Delta tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from tailrace_spark.sinks.lake.settings import LakeSettings


class DeltaSinkSettings(LakeSettings):
    """A Delta table for each source table, on local disks or S3: docs/sinks/delta.md."""

    type: Literal["delta"] = Field(default="delta", description="What kind of sink this is")


def storage_options(settings: DeltaSinkSettings, patience: Mapping[str, str]) -> dict[str, str]:
    """What S3's client of delta-rs gets; the rest it finds as AWS's own tools do."""
    secret = settings.secret_key
    options = {
        "AWS_ACCESS_KEY_ID": None if settings.access_key is None else settings.access_key.get_secret_value(),
        "AWS_SECRET_ACCESS_KEY": None if secret is None else secret.get_secret_value(),
        "AWS_REGION": settings.region,
        "AWS_ENDPOINT_URL": settings.endpoint,
        "AWS_ALLOW_HTTP": "true" if (settings.endpoint or "").startswith("http://") else None,
    }
    return {**patience, **{name: value for name, value in options.items() if value is not None}}
