"""A comma list of models is no way round what one of them may not."""

from typing import Any

import pytest

from gateway.core.errors import InvalidRequest
from gateway.fleet.fleet import joined, who_pays
from gateway.settings import ModelSettings


def model(deployment: str, **settings: Any) -> ModelSettings:
    return ModelSettings.model_validate({"deployments": [deployment], **settings})


def test_the_strictest_limits_of_all_hold() -> None:
    one = model("a/m", maximums={"n": 4}, race={"budget": 2.0})
    two = model(
        "b/m",
        maximums={"n": 1, "max_tokens": 100},
        race={
            "budget": 0.5,
            "usd_per_day": 3.0,
            "extra_usd_per_call": 0.1,
            "value_usd_per_s": 0.02,
            "audit_share": 0.0,
        },
    )
    for first, second in ((one, two), (two, one)):
        both = joined([first, second])
        assert both.maximums == {"n": 1, "max_tokens": 100}
        assert (both.race.budget, both.race.usd_per_day, both.race.extra_usd_per_call) == (0.5, 3.0, 0.1)
        assert (both.race.value_usd_per_s, both.race.audit_share) == (0.02, 0.0)
        assert {each.name for each in both.deployments} == {"a/m", "b/m"}


def test_who_has_the_strictest_limit_in_dollars_pays_for_a_list_wherever_it_stands() -> None:
    free, capped, narrow = (
        model("a/m"),
        model("b/m", usd_per_day=5.0, race={"usd_per_day": 3.0}),
        model("c/m", race={"usd_per_day": 1.0}),
    )
    assert who_pays({"free": free, "capped": capped, "narrow": narrow}) == "capped"
    assert who_pays({"narrow": narrow, "capped": capped, "free": free}) == "capped"
    assert who_pays({"free": free, "narrow": narrow}) == "narrow"
    assert who_pays({"one": free, "two": free}) == "one"


def test_models_that_begin_with_words_of_their_own_are_not_asked_as_one() -> None:
    with pytest.raises(InvalidRequest, match="one at a time"):
        joined([model("a/m", system_prefix="Be brief."), model("b/m")])
    same = [model(name, system_prefix="Be brief.") for name in ("a/m", "b/m")]
    assert joined(same).system_prefix == "Be brief."
