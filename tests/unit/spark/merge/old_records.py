"""Records of tables as earlier versions wrote them."""

from __future__ import annotations

from typing import Final

DEFINITION: Final = (
    b'"cdc": true, "columns": [{"kind": "partition_key", "name": "id", "position": 0, "type": "int"}, '
    b'{"kind": "regular", "name": "v", "position": -1, "type": "text"}], "dropped": [], "flags": ["compound"], '
    b'"format": 1, "id": "2be43760-e57f-11f1-8599-73518cff440e", "keyspace": "shop", "name": "plain"'
)
OLD_LAKE: Final = b'{"announced": 3, "buckets": 16, ' + DEFINITION + b', "names": {"id": {}, "v": {}}, "purged_to": 5}'
"""As a lake's state had it, whose truncations were a row of their own; SQL and images had `announced` alone more."""


OLD_OPENSEARCH: Final = (
    b'{"announced": 3, "definition": {' + DEFINITION + b'}, "erased": 6000000, "pending": true, "purged_to": 5, '
    b'"truncations": "02012be43760e57f11f1859973518cff440e026831e0d59f80ba98"}'
)
