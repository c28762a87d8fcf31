"""Breakages of what commands make of settings, before they begin."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Breakage, Needs, Red

BREAKAGES: Final = (
    Breakage(
        name="a-wrong-property-of-kafka-is-passed-on",
        promise="a wrong property of another program ends every command at once",
        file="common/tailrace_common/properties/names.py",
        old='        return unknown(name, names_of("librdkafka"), "librdkafka")\n',
        new="        return None\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/common/settings/test_settings.py",
                "test_each_wrong_property_has_its_line",
                r"kafka\.bootstrap_servers",
            ),
        ),
    ),
)
