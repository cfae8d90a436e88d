"""What is decided once for requests of one shape holds for no others, and for no other client, fleet or time."""

import asyncio
import copy
from collections.abc import Mapping
from typing import Any

import pytest

from gateway.api import shapes
from gateway.steering import NO_DEMANDS
from providers import Fact, Kind
from providers.simulator import Delta, Gate, RoleOnly, ScriptedProvider, Status, answer
from tests.app.gateway.key_desk import Desk, bearer, in_database, sha256
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, read, single

PICTURE = [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


async def asked_by(running: RunningGateway, headers: Mapping[str, str] | None = None, **fields: Any) -> set[str]:
    """Make a call; return which providers were asked."""
    before = {name: len(each.received) for name, each in running.providers.items()}
    async with running.chat(headers, **fields) as response:
        await response.read()
        assert response.status == 200
    return {name for name, each in running.providers.items() if len(each.received) > before[name]}


def kept_of(running: RunningGateway) -> list[shapes.ClientDecisions]:
    return list(running.gateway.context.fleet.kept.values())


def changed(running: RunningGateway, **models: Any) -> None:
    """Reload with other settings of the model."""
    config = copy.deepcopy(running.config)
    config["models"][MODEL] |= models
    running.gateway.reload(read(config, running.folder))


def saying(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


REQUESTS: list[dict[str, Any]] = [
    {},
    {"stream": True},
    {"stream": True, "stream_options": {"include_usage": True}},
    {"tools": [TOOL]},
    {"tools": [TOOL], "stream": True},
    {"response_format": {"type": "json_object"}},
    {"race": "race"},
    {"race": {"mode": "hedge", "win_on": "sentence"}, "stream": True},
    {"race": {"mode": "hedge", "hedge_delay_s": 50, "win_on": "valid"}},
    {"n": 2},
    {"web_search_options": {}},
    {"max_tokens": 5},
    {"reasoning_effort": "high"},
]


@pytest.mark.parametrize("fields", REQUESTS, ids=str)
async def test_a_call_is_recorded_and_sent_alike_whether_or_not_its_shape_is_known(
    serve: Serve, fields: dict[str, Any]
) -> None:
    async with serve(alpha=None, beta=None, config=single()) as running:
        running.prefer("alpha", "beta", first_s=9.0)
        plans = []
        for prompt in ("one", "two", "six"):
            async with running.chat({"x-holeshot-plan": "explain"}, **fields, **saying(prompt)) as response:
                assert response.status == 200, await response.text()
                await response.read()
                headers = {name for name in response.headers if name.startswith("x-holeshot-")}
                plans.append((response.status, headers))
        [of_client] = kept_of(running)
        assert len(of_client.by_shape) == 1
        assert plans[0] == plans[1] == plans[2]
        rows = await running.rows(
            "select status_code, streamed, mode, objective, win_on, size_class, profile, deadline_ms, max_tokens, tools"
            " from calls"
        )
        assert rows[0] == rows[1] == rows[2]
        sent = [each.body for each in running["alpha"].received]
        assert [each.pop("messages")[0]["content"] for each in sent] == ["one", "two", "six"]
        assert sent[0] == sent[1] == sent[2]


OTHER_TOOL = {"type": "function", "function": {"name": "hear", "parameters": {"type": "object"}}}
CHANGED: Mapping[str, dict[str, Any]] = {
    "a tool that takes a text": {"tools": [TOOL, {"type": "custom", "custom": {"name": "patch"}}]},
    **{
        f"a choice among tools: {mode}": {
            "tools": [TOOL, OTHER_TOOL],
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {"mode": mode, "tools": [{"type": "function", "function": {"name": "look"}}]},
            },
        }
        for mode in ("auto", "required")
    },
}


@pytest.mark.parametrize("fields", CHANGED.values(), ids=list(CHANGED))
async def test_what_a_vendor_lacks_is_changed_though_a_request_of_this_shape_was_sent_as_it_is(
    serve: Serve, fields: dict[str, Any]
) -> None:
    # Cohere has functions alone, and no choice among some of them.
    models = {name: {"deployments": ["alpha/command-a"], "race": {"mode": "single"}} for name in (MODEL, "new")}
    config = {"providers": {"alpha": {"preset": "cohere"}}, "models": models}
    async with serve(alpha=None, config=config) as running:
        await asked_by(running, tools=[TOOL, OTHER_TOOL])
        for model in (MODEL, "new"):
            await asked_by(running, model=model, **fields)
        plain, behind_it, alone = [each.body for each in running["alpha"].received]
        assert plain["tools"] == [TOOL, OTHER_TOOL]
        assert behind_it == alone
        assert {each["type"] for each in alone["tools"]} == {"function"}
        assert alone.get("tool_choice") != fields.get("tool_choice", "none")


async def test_what_is_kept_has_nothing_of_the_request(serve: Serve) -> None:
    async with serve(alpha=None) as running:
        secret = {"x-request-id": "of-nobody-else", "x-holeshot-tags": "team=blue"}
        await asked_by(running, secret, **saying("a secret"))
        [of_client] = kept_of(running)
        [(shape, known)] = of_client.by_shape.items()
        assert known.decision == shapes.decide(known.model, shape)
        assert (known.terms.prompt_tokens, known.terms.kind, known.terms.prefix) == (0, None, None)
        assert (known.terms.max_tokens, known.terms.limits, known.terms.demands) == (None, None, NO_DEMANDS)


async def test_a_picture_goes_only_where_pictures_are_taken(serve: Serve) -> None:
    blind = {"deployment": "blind/m", "capabilities": {"vision": False}}
    config = {"models": {MODEL: {"deployments": ["sees/m", blind]}}}
    async with serve(sees=None, blind=None, config=config) as running:
        running.answer_once_all_are_asked()
        assert await asked_by(running) == {"sees", "blind"}
        running["sees"].script = running["blind"].script = answer("a")
        for _ in range(3):
            assert await asked_by(running, messages=[{"role": "user", "content": PICTURE}]) == {"sees"}


async def test_a_prompt_that_is_too_long_for_some_goes_to_the_others(serve: Serve) -> None:
    short = {"deployment": "short/m", "capabilities": {"context_tokens": 1_000}}
    config = {"models": {MODEL: {"deployments": ["long/m", short]}}}
    async with serve(long=None, short=None, config=config) as running:
        running.answer_once_all_are_asked()
        assert await asked_by(running, **saying("short")) == {"long", "short"}
        running["long"].script = running["short"].script = answer("a")
        assert await asked_by(running, **saying("a" * 8_000)) == {"long"}


async def test_what_a_refusal_has_taught_since_counts(serve: Serve) -> None:
    async with serve(alpha=None, beta=None) as running:
        running.answer_once_all_are_asked()
        assert await asked_by(running) == {"alpha", "beta"}
        running["alpha"].script = running["beta"].script = answer("a")
        learnt = running.gateway.context.fleet.models[MODEL].deployments["beta/m"].learnt
        assert learnt is not None
        learnt.note("m", Fact(Kind.LENGTH, tokens=1))
        assert await asked_by(running) == {"alpha"}


async def test_an_override_holds_for_its_own_call_alone(serve: Serve) -> None:
    async with serve(alpha=None, beta=None) as running:
        running.prefer("alpha", "beta")
        running.answer_once_all_are_asked()
        assert await asked_by(running) == {"alpha", "beta"}
        running["alpha"].script = answer("a")
        assert await asked_by(running, {"x-holeshot-race": "single"}) == {"alpha"}
        assert await asked_by(running, race="single") == {"alpha"}
        running.answer_once_all_are_asked()
        assert await asked_by(running) == {"alpha", "beta"}


async def test_preferences_hold_for_their_own_call_alone(serve: Serve) -> None:
    async with serve(alpha=None, beta=None) as running:
        assert await asked_by(running, provider={"only": ["beta"]}) == {"beta"}
        running.answer_once_all_are_asked()
        assert await asked_by(running) == {"alpha", "beta"}
        running["beta"].script = answer("a")
        assert await asked_by(running, provider={"only": ["beta"]}) == {"beta"}


async def test_clients_share_nothing_that_was_decided(serve: Serve) -> None:
    clients = {
        "all": {"key_sha256": sha256("hs-all")},
        "only": {"key_sha256": sha256("hs-only"), "only": ["beta"]},
        "strict": {"key_sha256": sha256("hs-strict"), "require": {"zdr": True}},
        "other": {"key_sha256": sha256("hs-other"), "models": ["another"]},
    }
    kept = {"deployment": "alpha/m", "zdr": True}
    models = {MODEL: {"deployments": [kept, "beta/m"]}, "another": {"deployments": ["alpha/other"]}}
    config = {"clients": clients, "models": models}
    async with serve(alpha=None, beta=None, config=config) as running:
        for _ in range(2):
            running.answer_once_all_are_asked()
            assert await asked_by(running, bearer("hs-all")) == {"alpha", "beta"}
            running["alpha"].script = running["beta"].script = answer("a")
            assert await asked_by(running, bearer("hs-only")) == {"beta"}
            assert await asked_by(running, bearer("hs-strict")) == {"alpha"}
            async with running.chat(bearer("hs-other")) as response:
                assert response.status == 403


async def test_a_reload_in_the_middle_of_calls_decides_all_that_come_after_it(serve: Serve) -> None:
    async with serve(old=[RoleOnly(), Delta("a"), *answer("b")[1:]], kept=None) as running:

        async def calls(number: int) -> None:
            for _ in range(number):
                async with running.chat(stream=True) as response:
                    assert response.status == 200
                    await response.read()

        for deployments in (["kept/m"], ["old/m"], ["kept/m", "old/m"], ["kept/m"]):
            before = asyncio.gather(*(calls(4) for _ in range(5)))
            await calls(1)
            changed(running, deployments=deployments)
            await before  # some of them began before
            removed = {"old", "kept"} - {name.partition("/")[0] for name in deployments}
            asked = {name: len(running[name].received) for name in removed}
            await asyncio.gather(*(calls(3) for _ in range(4)))
            assert {name: len(running[name].received) for name in removed} == asked


async def test_a_call_under_way_during_a_reload_fails_over_within_what_it_was_decided_by(serve: Serve) -> None:
    go = asyncio.Event()
    async with serve(first=answer("a"), second=answer("b"), config=single()) as running:
        running.prefer("first", "second")
        assert await asked_by(running) == {"first"}
        running["first"].script = [Gate(go), Status(503)]
        call = asyncio.create_task(asked_by(running))
        await running["first"].reach(requests=2)
        changed(running, deployments=["first/m"], race={"mode": "race"})
        go.set()
        assert await call == {"first", "second"}


async def test_a_revoked_key_decides_nothing_and_new_rights_count_at_once(serve: Serve) -> None:
    config = in_database() | {"models": {"another": {"deployments": ["alpha/other"]}}}
    async with serve(alpha=None, beta=None, config=config) as running:
        desk = Desk(running)
        key, other = await desk.create("app"), await desk.create("other")
        for each in (key, other, key):
            assert (await desk.status_with(each))[0] == 200
        assert (await desk.ask("PATCH", "/app", {"only": ["beta"]})).status == 200
        assert await asked_by(running, bearer(key)) == {"beta"}
        assert (await desk.ask("PATCH", "/app", {"models": ["another"]})).status == 200
        assert (await desk.status_with(key))[0] == 403
        assert (await desk.ask("DELETE", "/app")).status == 200
        assert (await desk.status_with(key))[0] == 401
        assert (await desk.status_with(other))[0] == 200


async def test_limits_that_were_changed_count_for_the_next_call(serve: Serve) -> None:
    clients = {"app": {"key_sha256": sha256("hs-app")}}
    async with serve(alpha=None, config={"clients": clients}, in_one_minute=True) as running:
        desk = Desk(running)
        for _ in range(2):
            assert (await desk.status_with("hs-app"))[0] == 200
        config = copy.deepcopy(running.config)
        config["clients"]["app"]["rpm"] = 1
        running.gateway.reload(read(config, running.folder))
        assert (await desk.status_with("hs-app"))[0] == 200
        assert (await desk.status_with("hs-app"))[0] == 429
        running.gateway.reload(read(running.config, running.folder))
        assert (await desk.status_with("hs-app"))[0] == 200


async def test_who_varies_its_requests_drives_out_nothing_of_others(serve: Serve) -> None:
    clients = {name: {"key_sha256": sha256(f"hs-{name}")} for name in ("steady", "varies")}
    async with serve(alpha=None, config={"clients": clients, **single()}) as running:
        await asked_by(running, bearer("hs-steady"))
        for number in range(shapes.MOST_SHAPES + 5):
            await asked_by(running, {**bearer("hs-varies"), "x-holeshot-deadline-ms": str(1000 + number)})
        steady, varies = kept_of(running)
        assert (len(steady.by_shape), len(varies.by_shape)) == (1, shapes.MOST_SHAPES)


async def test_models_that_clients_make_up_are_not_kept(serve: Serve) -> None:
    async with serve(alpha=None, beta=None) as running:
        assert await asked_by(running, model="alpha/other") == {"alpha"}
        assert kept_of(running) == []


async def test_clients_that_called_long_ago_are_forgotten(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "MOST_CLIENTS", 2)
    clients = {name: {"key_sha256": sha256(f"hs-{name}")} for name in "abc"}
    async with serve(alpha=None, config={"clients": clients}) as running:
        for name in "abac":
            await asked_by(running, bearer(f"hs-{name}"))
        assert [each.client.name for each in kept_of(running)] == ["a", "c"]


async def test_a_provider_that_is_new_after_a_reload_is_asked(serve: Serve) -> None:
    async with serve(alpha=None, config=single()) as running, ScriptedProvider(answer("new")) as fresh:
        await asked_by(running)
        config = copy.deepcopy(running.config)
        config["providers"] = {"fresh": {"base_url": fresh.base_url}}
        config["models"] = {MODEL: {"deployments": ["fresh/m"]}}
        running.gateway.reload(read(config, running.folder))
        assert await asked_by(running) == set()
        assert fresh.counts.completions == 1


async def test_a_model_that_is_asked_in_place_of_another_is_not_taken_for_it_later(serve: Serve) -> None:
    toolless = {"deployment": "alpha/m", "capabilities": {"tools": False}}
    models = {
        MODEL: {"deployments": [toolless], "fallbacks": ["other"]},
        "other": {"deployments": ["beta/m"]},
    }
    async with serve(alpha=None, beta=None, config={"models": models}) as running:
        for model in (MODEL, "other", "other", MODEL):
            assert await asked_by(running, model=model, tools=[TOOL]) == {"beta"}
        rows = await running.rows("select model, answered_model from calls order by id")
    assert [(row["model"], row["answered_model"]) for row in rows] == [
        (MODEL, "other"), ("other", None), ("other", None), (MODEL, "other"),
    ]  # fmt: skip


OPENAI: dict[str, Any] = {"providers": {"alpha": {"preset": "openai"}}}
THOUGHT: dict[str, Any] = {
    "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello", "reasoning_content": "It greets."},
        {"role": "user", "content": "Bye"},
    ]
}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_vendor_that_refuses_what_others_answer_has_its_shapes_kept(serve: Serve, *, stream: bool) -> None:
    async with serve(alpha=None, config={**single(), **OPENAI}) as running:
        await asked_by(running, stream=stream, **saying("one"))
        assert [len(each.by_shape) for each in kept_of(running)] == [1]


async def test_and_what_a_history_has_of_others_is_told_after_a_shape_was_kept(serve: Serve) -> None:
    async with serve(alpha=None, config={**single(), **OPENAI}) as running:
        for fields, told in [(saying("one"), None), (THOUGHT, "messages[1].reasoning_content"), (saying("two"), None)]:
            async with running.chat(**fields) as response:
                assert (response.status, response.headers.get("x-holeshot-dropped")) == (200, told)
        assert running["alpha"].received[1].body["messages"][1] == {"role": "assistant", "content": "Hello"}
        assert [len(each.by_shape) for each in kept_of(running)] == [1]


async def test_what_its_vendor_does_not_stream_is_asked_for_whole_after_a_shape_was_kept(serve: Serve) -> None:
    async with serve(alpha=None, config={**single(), **OPENAI}) as running:
        for fields in ({}, {"audio": {"format": "wav", "voice": "alloy"}}, {"audio": {"format": "pcm16"}}, {}):
            await asked_by(running, **fields, **saying("one"))
        assert [each.body["stream"] for each in running["alpha"].received] == [True, False, True, True]
        [of_client] = kept_of(running)
        assert len(of_client.by_shape) == 1
