"""Which of Spark's properties a subscription may set."""

from __future__ import annotations

import pytest

from tailrace_common.sections.server import SPARK_ALLOWED
from tailrace_common.settings import Settings, settings_from
from tailrace_server.model.errors import RefusedRequestError
from tailrace_server.operations.applications import require_allowed
from tailrace_server.operations.asking import Asked, checked
from tests.unit.server.requests import SECRET

SQL = {"type": "sql", "url": f"postgresql://u:{SECRET}@host/d"}


def test_sizes_and_places_are_allowed() -> None:
    spark = {"spark": {"executor": {"memory": "2g", "instances": 2}}, "spark.dynamicAllocation.enabled": True}
    request = checked(Asked(table="shop.orders", name="w", sink=SQL, spark=spark), Settings())
    assert request.shape.spark == {
        "spark.executor.memory": "2g", "spark.executor.instances": 2, "spark.dynamicAllocation.enabled": True,
    }  # fmt: skip
    for name in SPARK_ALLOWED:
        require_allowed("w", {name.replace("*", "maxExecutors"): "2"}, SPARK_ALLOWED)


@pytest.mark.promise("subscription.own-application", "subscription.checked")
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("spark.master", "local[1]", "spark.master is not for subscriptions to set; .*server.spark_allowed"),
        ("spark.driver.extraJavaOptions", "-agentpath:x", "is not for subscriptions to set"),
        ("spark.jars", "http://there/x.jar", "is not for subscriptions to set"),
        ("spark.submit.pyFiles", "x.py", "is not for subscriptions to set"),
        ("spark.executor.memry", "2g", "did you mean spark.executor.memory?"),
        ("spark.dynamicAllocation.enable", True, "did you mean"),
        ("spark.executor.memory", ["2g"], "must be a text, a number, or true or false"),
        ("spark.executor.memory", "2g\nspark.jars x", "must be one line of text"),
        ("spark.yarn.queue", "${env:TAILRACE_SERVER__URL}", "write out the value"),
    ],
)
def test_what_could_run_code_or_tell_secrets_is_refused(name: str, value: object, words: str) -> None:
    with pytest.raises(RefusedRequestError, match=words):
        checked(Asked(table="shop.orders", name="w", sink=SQL, spark={name: value}), Settings())


def test_a_server_may_allow_more_but_no_secret() -> None:
    base = settings_from({"server": {"spark_allowed": ["spark.*"]}}, "test")
    spec = Asked(table="shop.orders", name="w", sink=SQL, spark={"spark.master": "spark://host:7077"})
    assert checked(spec, base).shape.spark == {"spark.master": "spark://host:7077"}
    with pytest.raises(RefusedRequestError, match="is a secret"):
        require_allowed("w", {"spark.authenticate.secret": SECRET}, ("spark.*",))
    with pytest.raises(RefusedRequestError, match="this server allows none"):
        require_allowed("w", {"spark.executor.memory": "2g"}, ())
