"""Breakages of what commands make of settings, before they begin."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Red, breakage
from tests.breakages.mutations import constant

BREAKAGES: Final = {
    "a-wrong-property-of-kafka-is-passed-on": breakage(
        "a wrong property of another program ends every command at once",
        "tailrace_common.properties.names:librdkafka_fault",
        constant("unknown(...)", None),
        Red(
            "unit/common/settings/test_settings.py",
            "test_each_wrong_property_has_its_line",
            r"kafka\.bootstrap_servers",
        ),
    ),
}
