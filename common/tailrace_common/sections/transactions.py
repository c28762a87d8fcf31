"""What the sections of change logs have in common that can deliver the changes of a mutation together."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from tailrace_common.sections.images import ImagesSection


class TransactionsSection(ImagesSection):
    """A section of a sink that may keep the changes of a mutation together, and mark them: docs/transactions.md."""

    transactions: bool = Field(
        default=False,
        description="Deliver the changes of one mutation together, each marked with `transaction`: id, index and "
        "count. Not with images, filters, masks and one_copy_seconds; fixed once the stream has begun",
    )

    @model_validator(mode="after")
    def _check_transactions(self) -> Self:
        if self.transactions and self.images is not None:
            raise ValueError("transactions and images exclude each other: images are made of changes one by one")
        return self
