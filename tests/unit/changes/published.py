"""What of a change its record has to give back."""

from __future__ import annotations

from dataclasses import replace

from tailrace_schemas.change import Cell, Change, ColumnDeletion


def published(change: Change) -> Change:
    """The change without what its record leaves out (cells of dropped columns), in one order."""
    live = {column.name_bytes for column in change.table.columns}

    def place(part: Cell | ColumnDeletion) -> tuple[bytes, bytes]:
        return part.column.name_bytes, (part.path or b"") if isinstance(part, Cell) else b""

    cells = (cell for cell in change.cells if cell.column.name_bytes in live)
    deletions = (deleted for deleted in change.column_deletions if deleted.column.name_bytes in live)
    return replace(
        change,
        cells=tuple(sorted(cells, key=place)),
        column_deletions=tuple(sorted(deletions, key=place)),
    )
