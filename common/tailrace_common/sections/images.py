"""What the sections of change-log sinks have in common: whether their changes carry row images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr

from tailrace_common.sections.section import DAY_SECONDS
from tailrace_common.sections.sink import SinkSettings


class ImagesSection(SinkSettings):
    """A section of a sink that may give each change the images of its rows: docs/images.md."""

    images: SecretStr | None = Field(
        default=None,
        examples=["sqlite:///images.db"],
        description="Give each change its rows as they were before and are after it. SQLAlchemy URL of the database "
        "that keeps the rows for that, as of a SQL sink. Unset: no images",
    )
    images_file: Path | None = Field(
        default=None, examples=["/run/secrets/images-url"], description="File that holds the URL, instead of `images`"
    )
    images_horizon_seconds: Annotated[int, Field(ge=0)] = Field(
        default=10 * DAY_SECONDS,
        description="Deletions are forgotten so long after they were written and came; older changes then have no "
        "images. At least the tables' gc_grace_seconds and the topics' retention; 0: never",
    )
