from __future__ import annotations

from pathlib import Path

from tailrace.demo.flow import committed_ends


def test_the_checkpoint_tells_what_the_sink_has(tmp_path: Path) -> None:
    assert committed_ends(tmp_path) == {}
    for name in ("commits", "offsets"):
        (tmp_path / name).mkdir()
    assert committed_ends(tmp_path) == {}
    for batch, end in (("9", 7), ("10", 8), ("11", 9)):
        (tmp_path / "offsets" / batch).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"demo.shop.orders":{{"1":{end}}}}}')
    (tmp_path / "commits" / "9").write_text("v1\n{}")
    assert committed_ends(tmp_path) == {("demo.shop.orders", 1): 7}
    (tmp_path / "commits" / "10").write_text("v1\n{}")
    (tmp_path / "commits" / ".11.tmp").write_text("")
    assert committed_ends(tmp_path) == {("demo.shop.orders", 1): 8}
