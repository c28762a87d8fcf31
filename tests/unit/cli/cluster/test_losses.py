"""`tailrace losses`, as far as it needs no service."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from tailrace.cli.cluster.losses import loss_row, losses_named
from tailrace.cli.main import complete
from tailrace.cli.support.records import chosen_losses, losses_in
from tailrace.publish.reports import acknowledged, loss_record
from tailrace.state import Loss, Missing
from tailrace_common.kafka import Record
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.position import Position

EARLY, LATE = (
    Loss(Missing.LOST, (segment, segment + 1), Position(1, segment, 40), Position(1, segment + 2, 0))
    for segment in (6, 16)
)


def topic(*records: tuple[bytes, bytes | None]) -> list[Record]:
    return [Record(offset, 0, key, value) for offset, (key, value) in enumerate(records)]


def test_losses_are_listed_until_they_are_acknowledged(capsys: pytest.CaptureFixture[str]) -> None:
    """The oldest first, of one host or of all."""
    late, early, others = (
        loss_record("c", "h", LATE, 20),
        loss_record("c", "h", EARLY, 10),
        loss_record("c", "i", LATE, 15),
    )
    noise: list[tuple[bytes, bytes | None]] = [
        (b"c/h", b"{}"),
        (b"c/h/loss/1/99", b"nonsense"),
        (b"c/h/loss/1/98", None),
    ]
    everything = losses_in(topic(*noise, late, early, others))
    assert [one.loss.seen for one in everything] == [10, 15, 20]
    assert "c/h/loss/1/99" in capsys.readouterr().err
    done = losses_in(topic(late, early, (early[0], acknowledged(early[1], 30))))
    assert [one.loss.id for one in chosen_losses(done, None)] == ["loss/1/16"]
    assert [one.loss.id for one in chosen_losses(done, None, all_=True)] == ["loss/1/6", "loss/1/16"]
    assert [one.loss.host for one in chosen_losses(everything, "i")] == ["i"]


def test_a_row_has_everything_that_is_known() -> None:
    key, value = loss_record("c", "h", EARLY, 1_700_000_000_000, ["shop.b", "shop.a"])
    (stored,) = losses_in(topic((key, acknowledged(value, 1_700_000_060_000))))
    assert loss_row(stored.loss) == {
        "time": "2023-11-14T22:13:20+00:00",
        "host": "h",
        "id": "loss/1/6",
        "kind": "lost",
        "segments": "6-7",
        "from": "1/6:40",
        "to": "1/8:0",
        "tables": "shop.a, shop.b",
        "reason": str(EARLY),
        "acknowledged": "2023-11-14T22:14:20+00:00",
    }


def test_losses_are_chosen_by_id() -> None:
    """One that several hosts have needs the host."""
    losses = losses_in(
        topic(loss_record("c", "h", EARLY, 1), loss_record("c", "h", LATE, 2), loss_record("c", "i", LATE, 3))
    )
    assert [one.loss.id for one in losses_named(losses, ["loss/1/6"])] == ["loss/1/6"]
    assert losses_named(losses, None) == losses
    with pytest.raises(SettingsError, match=r"no loss loss/1/7 waits .* loss/1/6, loss/1/16"):
        losses_named(losses, ["loss/1/7"])
    with pytest.raises(SettingsError, match="--host with one of h, i"):
        losses_named(losses, ["loss/1/16"])


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["loss/1/6", "--all"]])
def test_either_ids_or_all_are_acknowledged(words: list[str]) -> None:
    result = CliRunner().invoke(complete(), ["losses", "acknowledge", *words])
    assert result.exit_code == 2
    assert "give ids, or --all" in result.stderr
