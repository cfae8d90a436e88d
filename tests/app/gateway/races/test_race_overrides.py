"""What one request may say about its own race, its tags and its model."""

from typing import Any

import pytest

from providers.simulator import Status
from tests.app.gateway.running_gateway import MODEL, Serve, single


@pytest.mark.parametrize(
    ("race", "launched"),
    [
        ({"mode": "race", "width": 3}, 3),
        ({"mode": "race", "width": 1}, 1),
        ({"mode": "race"}, 2),
        ("race", 2),
        ("single", 1),
        ({"mode": "single", "width": 3}, 1),
        (None, 1),
        ({}, 1),
    ],
)
async def test_the_body_may_say_how_its_call_is_raced(serve: Serve, race: Any, launched: int) -> None:
    config = {"models": {MODEL: {"race": {"mode": "single", "width": 2, "budget": 2.0}}}}
    async with serve(alpha=None, beta=None, gamma=None, config=config) as running:
        async with running.chat(race=race) as response:
            assert response.headers["x-holeshot-launched"] == str(launched)
        assert (await running.call())["launched"] == launched
        assert all("race" not in received.body for each in running.providers.values() for received in each.received)


@pytest.mark.parametrize("header", ["race", '"race"', '{"mode":"race"}', ' {"mode": "race", "width": 2}'])
async def test_the_header_may_say_so_too(serve: Serve, header: str) -> None:
    async with (
        serve(alpha=None, beta=None, config=single()) as running,
        running.chat({"x-holeshot-race": header}) as response,
    ):
        assert (response.headers["x-holeshot-mode"], response.headers["x-holeshot-launched"]) == ("race", "2")


async def test_the_body_goes_before_the_header(serve: Serve) -> None:
    async with (
        serve(alpha=None, beta=None) as running,
        running.chat({"x-holeshot-race": "race"}, race="single") as response,
    ):
        assert response.headers["x-holeshot-mode"] == "single"


@pytest.mark.parametrize(
    "race",
    [
        "fastest",
        7,
        True,
        ["race"],
        {"mode": "fastest"},
        {"width": 0},
        {"width": 99},
        {"width": "two"},
        {"width": 1.5},
        {"widht": 2},
        {"hedge_delay_s": -1},
        {"hedge_delay_s": 1e9},
        {"win_on": "headers"},
    ],
    ids=str,
)
async def test_what_makes_no_sense_is_refused_with_the_modes_there_are(serve: Serve, race: Any) -> None:
    async with serve(alpha=None, beta=None) as running:
        async with running.chat(race=race) as response:
            error = (await response.json())["error"]
        assert (response.status, error["param"], error["type"]) == (400, "race", "invalid_request_error")
        assert "single, race, hedge, auto" in error["message"]
        assert running.requests == 0


@pytest.mark.parametrize("header", ["fastest", "{", '{"mode":', "2", '["race"]', "\xe9"])
async def test_a_header_that_makes_no_sense_is_refused_too(serve: Serve, header: str) -> None:
    async with serve(alpha=None, beta=None) as running:
        async with running.chat({"x-holeshot-race": header}) as response:
            error = (await response.json())["error"]
        assert (response.status, error["param"]) == (400, "x-holeshot-race")
        assert running.requests == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"store": True},
        {"previous_response_id": "resp_1"},
        {"background": True},
        {"web_search_options": {}},
        {"tools": [{"type": "web_search"}]},
        {"tools": [{"type": "function", "function": {"name": "f"}}, {"type": "code_interpreter"}]},
    ],
    ids=str,
)
async def test_what_leaves_something_behind_is_never_sent_twice(serve: Serve, fields: dict[str, Any]) -> None:
    async with serve(alpha=None, beta=None) as running:
        async with running.chat(race={"mode": "race", "width": 2}, **fields) as response:
            assert response.headers["x-holeshot-mode"] == "single"
        assert running.requests == 1


@pytest.mark.parametrize("mode", ["auto", "race", "single"])
async def test_what_a_provider_is_to_store_goes_to_one_that_stores_before_all_others(serve: Serve, mode: str) -> None:
    config = {
        "providers": {"alpha": {"preset": "vllm"}, "beta": {"preset": "openai"}},
        "models": {MODEL: {"race": {"mode": mode}}},
    }
    async with serve(alpha=None, beta=None, config=config) as running:
        running.prefer("alpha", "beta", first_s=5.0)

        async def answered_by(**fields: Any) -> str:
            async with running.chat(**fields) as response:
                await response.read()
            return str(response.headers["x-holeshot-provider"])

        searching = {"tools": [{"type": "web_search"}]}  # is as little sent twice, and nothing of it is stored
        assert await answered_by(**searching) == "alpha"
        for stream in (False, True):
            assert await answered_by(store=True, stream=stream) == "beta"
        assert await answered_by(**searching) == "alpha"
        assert all("store" not in each.body for each in running["alpha"].received)
        running["beta"].script = [Status(503)]
        assert await answered_by(store=True) == "alpha"


@pytest.mark.parametrize(
    "fields", [{"store": False}, {"store": None}, {"tools": [{"type": "function", "function": {"name": "f"}}]}], ids=str
)
async def test_what_leaves_nothing_behind_is_raced(serve: Serve, fields: dict[str, Any]) -> None:
    async with serve(alpha=None, beta=None) as running, running.chat(**fields) as response:
        assert response.headers["x-holeshot-launched"] == "2"


@pytest.mark.parametrize("header", ["prompt=v2, user = ann", '{"prompt":"v2","user":"ann"}'])
async def test_tags_are_kept_as_json(serve: Serve, header: str) -> None:
    async with serve() as running:
        async with running.chat({"x-holeshot-tags": header}) as response:
            assert response.status == 200
        rows = await running.rows("select tags ->> 'prompt' as prompt, tags ->> 'user' as user from calls")
    assert rows == [{"prompt": "v2", "user": "ann"}]


async def test_a_provider_and_its_model_can_be_named_ad_hoc(serve: Serve) -> None:
    async with serve(alpha=None, beta=None) as running:
        async with running.chat(model="beta/another-model") as response:
            assert response.headers["x-holeshot-deployment"] == "beta/another-model"
        assert running["beta"].received[0].body["model"] == "another-model"
        assert (await running.call())["model"] == "beta/another-model"


async def test_a_comma_list_is_an_ad_hoc_race(serve: Serve) -> None:
    async with serve(alpha=None, beta=None) as running:
        running.answer_once_all_are_asked()
        async with running.chat(model="alpha/x, beta/y/z", race="race") as response:
            assert response.headers["x-holeshot-launched"] == "2"
        assert running["alpha"].received[0].body["model"] == "x"
        assert running["beta"].received[0].body["model"] == "y/z"


@pytest.mark.parametrize(
    ("names", "launched"),
    [
        (("one", "two"), 25 + 20),  # a burst, and a hundredth of an attempt for each call
        (("alpha/x", "beta/y", "gamma/z"), 25 + 25 + 19),  # an attempt for each call, and a burst
    ],
    ids=["models", "deployments"],
)
async def test_however_a_list_is_written_its_extra_attempts_are_paid_from_one_budget(
    serve: Serve, names: tuple[str, ...], launched: int
) -> None:
    few = {"budget": 0.01}
    models = {"one": {"deployments": ["alpha/x"], "race": few}, "two": {"deployments": ["beta/y"], "race": few}}
    found = 0
    async with serve(alpha=None, beta=None, gamma=None, config={"models": models}) as running:
        for number in range(25):
            named = f",{' ' * number}".join(names)
            async with running.chat(model=named, race={"mode": "race", "width": len(names)}) as response:
                found += int(response.headers["x-holeshot-launched"])
    assert found == launched


@pytest.mark.parametrize("model", ["nobody/x", "alpha/x,nobody/y", "alpha/", "alpha/x,", "/x", ","])
async def test_an_ad_hoc_name_that_leads_nowhere_is_an_unknown_model(serve: Serve, model: str) -> None:
    async with serve(alpha=None) as running:
        async with running.chat(model=model) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (404, "model_not_found")
        assert running.requests == 0
