"""Requests written for OpenRouter and LiteLLM, sent to a running gateway."""

from typing import Any

import pytest

from gateway.core.attempts import AnswerKind
from providers.simulator import Status
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, single

TWO_MODELS: dict[str, Any] = {
    "models": {
        "one": {"deployments": ["alpha/m1"]},
        "two": {"deployments": ["beta/m2"]},
    }
}


def asked(running: RunningGateway) -> dict[str, int]:
    return {name: len(each.received) for name, each in running.providers.items()}


async def test_only_who_is_named_is_asked_and_the_provider_hears_nothing_of_it(serve: Serve) -> None:
    async with serve(alpha=None, beta=None, gamma=None) as running:
        for _ in range(4):
            async with running.chat(provider={"only": ["Beta"]}, transforms=[], route="fallback") as response:
                assert response.status == 200
                assert response.headers["x-holeshot-provider"] == "beta"

        assert asked(running) == {"alpha": 0, "beta": 4, "gamma": 0}
        assert {"provider", "transforms", "route"}.isdisjoint(running.providers["beta"].received[0].body)


async def test_an_order_is_kept_whoever_is_faster_and_goes_on_when_one_fails(serve: Serve) -> None:
    async with serve(alpha=None, beta=[Status(503)], gamma=None) as running:
        running.prefer("alpha", "gamma", "beta")
        async with running.chat(provider={"order": ["beta", "gamma"]}) as response:
            assert response.headers["x-holeshot-provider"] == "gamma"

        assert asked(running) == {"alpha": 0, "beta": 1, "gamma": 1}


async def test_without_fallbacks_nobody_else_is_asked(serve: Serve) -> None:
    async with serve(alpha=None, beta=[Status(503)]) as running:
        async with running.chat(provider={"order": ["beta"], "allow_fallbacks": False}) as response:
            assert response.status >= 500

        assert asked(running) == {"alpha": 0, "beta": 1}


async def test_the_next_of_the_models_is_asked_when_the_first_failed(serve: Serve) -> None:
    async with serve(alpha=[Status(503)], beta=None, config=TWO_MODELS) as running:
        async with running.chat(model="one", models=["two"]) as response:
            assert response.status == 200
            assert response.headers["x-holeshot-fallback"] == "two"

        assert asked(running) == {"alpha": 1, "beta": 1}


async def test_the_fastest_of_a_list_of_models_is_a_race_of_them(serve: Serve) -> None:
    async with serve(alpha=None, beta=None, config=TWO_MODELS) as running:
        running.answer_once_all_are_asked()
        async with running.chat(model="one,two", fastest_response=True) as response:
            assert response.status == 200

        assert asked(running) == {"alpha": 1, "beta": 1}
        assert "fastest_response" not in running.providers["alpha"].received[0].body


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"provider": {"sort": "quality"}}, "provider"),
        ({"provider": {"enforce_distillable_text": True}}, "provider.enforce_distillable_text"),
        ({"models": 3}, "models"),
    ],
)
async def test_what_cannot_be_had_is_a_400_that_names_it(serve: Serve, fields: dict[str, Any], param: str) -> None:
    async with serve() as running, running.chat(**fields) as response:
        assert response.status == 400
        assert (await response.json())["error"]["param"] == param


@pytest.mark.parametrize(
    ("provider", "is_evidence"),
    [
        ({}, True),
        ({"allow_fallbacks": True}, True),
        ({"only": ["beta"]}, False),
        ({"order": ["beta"]}, False),
        ({"ignore": ["alpha"]}, False),
    ],
)
async def test_flaws_of_whom_the_request_chose_itself_are_noted_but_demote_nobody(
    serve: Serve, provider: dict[str, Any], is_evidence: bool
) -> None:
    async with serve(alpha=None, beta=None, config=single()) as running:
        quality = running.gateway.steering._learning.quality
        for _ in range(300):
            assert quality.judged(MODEL, AnswerKind.JSON, "alpha/m", None) is None
        running.prefer("beta", "alpha")
        for _ in range(20):  # the answer is no JSON
            async with running.chat(provider=provider, response_format={"type": "json_object"}) as response:
                await response.read()

        [row] = await running.rows(
            "select count(*) as n from attempts where deployment = 'beta/m' and flaw = 'bad_json'"
        )
        assert row["n"] >= 7
        demoted = quality.demoted(MODEL, AnswerKind.JSON)
        assert ("beta/m" in (demoted or {})) is is_evidence
