"""What takes updates apart is refused where a sink is given them whole."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace_common.sections.stream import StreamSettings
from tailrace_schemas.errors import SettingsError
from tailrace_spark.job.whole_updates import require_whole
from tailrace_spark.sinks.protocol import Capabilities

UPDATES: Any = object()
LOG_TABLES, TRANSACTIONS = Capabilities(whole_updates=UPDATES), Capabilities(transactions=True)


@pytest.mark.parametrize(
    ("stream", "sinks"),
    [
        ({"where": {"shop.feed": "pk > 1"}}, [LOG_TABLES, TRANSACTIONS]),
        ({"columns": {"shop.feed.v": "drop"}}, [LOG_TABLES, TRANSACTIONS]),
        ({"one_copy_seconds": 60}, [TRANSACTIONS]),
    ],
)
def test_a_setting_is_refused_by_its_name(stream: dict[str, Any], sinks: list[Capabilities]) -> None:
    settings = StreamSettings(**stream)
    for capabilities in (LOG_TABLES, TRANSACTIONS):
        if capabilities in sinks:
            with pytest.raises(SettingsError, match=rf"stream\.{next(iter(stream))} is not for"):
                require_whole(settings, capabilities)
        else:
            require_whole(settings, capabilities)
    require_whole(settings, Capabilities())
