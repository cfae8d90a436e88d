"""What refusals teach, by client: at once for the one that met it, for all from the second one on."""

from collections.abc import Sequence
from typing import Any

import pytest
from structlog.typing import EventDict

from providers.simulator import Raw, Step
from tests.app.gateway.apis.test_dialects import RESPONSE_BYTES, speaking
from tests.app.gateway.key_desk import bearer, sha256
from tests.app.gateway.races.test_probes import ended, probing
from tests.app.gateway.refusals.test_refused_fields import ANSWERS, QUESTION, learnt, refused, refusing, told
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve
from tests.identity import AUDIENCE, Identity

EFFORT = {"messages": QUESTION, "reasoning_effort": "low"}
NAMES = ("ann", "bob", "cid", "dan", "eva", "fay", "gus", "hal", "ivy", "joe")


def clients(*names: str) -> dict[str, Any]:
    return {"clients": {name: {"key_sha256": sha256(f"hs-{name}")} for name in names}}


async def said(running: RunningGateway, name: str, body: Any = EFFORT) -> Any:
    """Return the status of a call of a client, and what it is told was left out."""
    async with running.chat(bearer(f"hs-{name}"), **body) as response:
        await response.read()
    return response.status, response.headers.get("x-holeshot-dropped")


def too_long(tokens: int) -> list[Step]:
    return refused(f"This model's maximum context length is {tokens} tokens.", code="context_length_exceeded")


async def test_a_lone_clients_true_refusal_costs_it_one_and_then_never_again(serve: Serve) -> None:
    async with serve(alpha=None, config=clients("ann", "bob")) as running:
        running["alpha"].answers = refusing("reasoning_effort")
        for sendings in (2, 3, 4):
            assert await said(running, "ann") == (200, "reasoning_effort")
            assert len(running["alpha"].received) == sendings


async def test_ten_clients_meet_it_by_two_refusals_in_all(serve: Serve, logged: list[EventDict]) -> None:
    async with serve(alpha=None, config=clients(*NAMES)) as running:
        running["alpha"].answers = refusing("reasoning_effort")
        for name in NAMES * 2:
            assert await said(running, name) == (200, "reasoning_effort")
        assert len(running["alpha"].received) == 2 * len(NAMES) + 2
    lines = [entry for entry in logged if entry["event"] == "deployment.learnt"]
    assert [(line["client"], line["for_all"], line.get("others"), line["why"]) for line in lines] == [
        ("ann", False, None, "400 invalid_request_error"),
        ("bob", True, "ann", "400 invalid_request_error"),
    ]


# What prompts may lead a provider to say of every request that they are in, whatever is left out of it.
UNTRUE = {
    "a field": "Unsupported parameter: 'temperature' is not supported with this model.",
    "a value": "Unsupported value: 'reasoning_effort' does not support 'high' with this model. Supported values are:"
    " 'low' and 'medium'.",
    "a length": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "a limit": "max_output_tokens is too large: 100. This model supports at most 64 completion tokens",
    "roles": "Conversation roles must alternate user/assistant/user/assistant/...",
    "a forced call": "tool_choice: required is not supported while thinking is enabled",
    "the type of a tool": "Invalid value: 'function'. Supported values are: 'custom'.",
    "many tools": "Invalid 'tools': array too long. Expected an array with maximum length 0, but got an array with"
    " length 1 instead.",
    "the API": "This model is only supported in v1/chat/completions and not in v1/responses.",
    "a stream": "Your organization must be verified to stream this model.",
    "a mark": "input.0.content.0.cache_control: Extra inputs are not permitted",
    "a model that is gone": "The model `m` has been deprecated and does not exist",
}


@pytest.mark.parametrize("attackers", [2, 3])
@pytest.mark.parametrize("kind", UNTRUE)
async def test_prompts_of_several_clients_that_are_refused_in_each_form_change_nothing_for_others(
    serve: Serve, kind: str, attackers: int
) -> None:
    tool = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
    asked = {
        "model": MODEL,
        "stream": True,
        "temperature": 0.5,
        "max_output_tokens": 100,
        "reasoning": {"effort": "high"},
        "tools": [tool],
        "tool_choice": "required",
    }

    async def say(name: str, text: str) -> Any:
        body = {**asked, "input": [{"role": "user", "content": text}]}
        async with running.post(body, path="/v1/responses", headers=bearer(f"hs-{name}")) as response:
            await response.read()
        assert "x-holeshot-dropped" not in response.headers
        return response.status

    config = {**clients(*NAMES), "providers": {"alpha": speaking("responses")}}
    async with serve(alpha=None, config=config) as running:
        answered = [Raw(RESPONSE_BYTES, token=True)]
        running["alpha"].answers = lambda body: refused(UNTRUE[kind]) if "attack" in str(body) else answered
        assert await say("joe", "word " * 9000) == 200
        for name in NAMES[:attackers] * 2:
            assert await say(name, "attack") >= 400
        assert await say("joe", "word " * 9000) == 200
        first, *_, last = (each.body for each in running["alpha"].received)
    assert last == first


async def test_what_one_client_alone_has_met_changes_no_field_of_others(serve: Serve) -> None:
    def answers(body: Any) -> Sequence[Step]:
        return refusing("reasoning_effort")(body) if b"attack" in str(body).encode() else ANSWERS["chat"]

    attack = {**EFFORT, "messages": [{"role": "user", "content": "attack"}]}
    async with serve(alpha=None, config=clients("eve", "bob")) as running:
        running["alpha"].answers = answers
        for _ in range(3):
            assert await said(running, "eve", attack) == (200, "reasoning_effort")
        assert await said(running, "bob") == (200, None)
        assert running["alpha"].received[-1].body["reasoning_effort"] == "low"


async def test_a_prompt_that_is_too_long_for_one_client_keeps_nobody_out_until_a_second_meets_it(serve: Serve) -> None:
    long = {"messages": [{"role": "user", "content": "word " * 3000}]}
    config = {**clients("eve", "bob", "cid"), "models": {MODEL: {"race": {"mode": "single"}}}}
    async with serve(alpha=None, beta=None, config=config) as running:
        running.prefer("alpha", "beta")
        running["alpha"].answers = lambda _: too_long(2000)
        for _ in range(2):
            assert (await said(running, "eve", long))[0] == 200
        assert len(running["alpha"].received) == 1
        assert (await said(running, "bob", long))[0] == 200
        assert len(running["alpha"].received) == 2
        for name in ("cid", "bob", "eve"):
            assert (await said(running, name, long))[0] == 200
        assert len(running["alpha"].received) == 2


async def test_of_equals_others_are_sent_first_to_the_one_that_has_not_refused_the_same(serve: Serve) -> None:
    config = {**clients("eve", "bob"), "models": {MODEL: {"race": {"mode": "single"}}}}
    async with serve(alpha=None, beta=None, config=config) as running:
        running["alpha"].answers = running["beta"].answers = refusing("reasoning_effort")
        assert await said(running, "eve") == (200, "reasoning_effort")
        met, other = ("alpha", "beta") if running["alpha"].received else ("beta", "alpha")
        running[met].answers = running[other].answers = None
        running[met].script = running[other].script = ANSWERS["chat"]
        asked = len(running[met].received)
        for _ in range(8):
            assert await said(running, "bob") == (200, None)
        assert (len(running[met].received), len(running[other].received)) == (asked, 8)
        for _ in range(40):
            assert await said(running, "bob", {"messages": QUESTION}) == (200, None)
        assert len(running[met].received) > asked


async def test_what_others_have_met_makes_no_call_slower(serve: Serve) -> None:
    config = {**clients("eve", "bob"), "models": {MODEL: {"race": {"mode": "single"}}}}
    async with serve(alpha=None, beta=None, config=config) as running:
        running.prefer("alpha", "beta")
        running["alpha"].answers = refusing("reasoning_effort")
        assert await said(running, "eve") == (200, "reasoning_effort")
        assert await said(running, "bob") == (200, "reasoning_effort")
        assert not running["beta"].received


async def test_without_clients_it_holds_at_once_for_everybody(serve: Serve) -> None:
    async with serve(alpha=None) as running:
        running["alpha"].answers = refusing("reasoning_effort")
        await learnt(running, EFFORT, dropped="reasoning_effort")


async def test_two_end_users_of_one_client_are_one_client(serve: Serve) -> None:
    async with serve(alpha=None, config=clients("ann", "bob")) as running:
        running["alpha"].answers = refusing("reasoning_effort")
        for user in ("u1", "u2"):
            assert await said(running, "ann", {**EFFORT, "user": user}) == (200, "reasoning_effort")
        assert len(running["alpha"].received) == 3
        assert await said(running, "bob") == (200, "reasoning_effort")
        assert len(running["alpha"].received) == 5


async def test_two_tokens_of_one_client_are_one_client(serve: Serve) -> None:
    async with Identity() as issuer:
        config = clients("bob")
        config["clients"] |= {"app": {}}
        config["issuers"] = {"company": {"issuer": issuer.url, "audience": AUDIENCE, "algorithms": ["RS256"]}}
        async with serve(alpha=None, config=config) as running:
            running["alpha"].answers = refusing("reasoning_effort")
            for token in (issuer.token(jti="one", sub="ann"), issuer.token(jti="two", sub="eve")):
                async with running.chat(bearer(token), messages=QUESTION, reasoning_effort="low") as response:
                    assert (response.status, response.headers["x-holeshot-dropped"]) == (200, "reasoning_effort")
            assert [row["client"] for row in await running.rows("select client from calls")] == ["app", "app"]
            assert len(running["alpha"].received) == 3
            known = running.gateway.fleets.learnt("alpha")
            assert known is not None
            assert [(each.met.clients, each.met.is_for_all) for each in known.listed()] == [(("app",), False)]
            running["alpha"].answers = None
            assert await said(running, "bob") == (200, None)
            assert running["alpha"].received[-1].body["reasoning_effort"] == "low"


async def test_a_client_that_finds_it_wrong_forgets_it_for_itself_alone(serve: Serve) -> None:
    said_of = "Unsupported parameter: '{}' is not supported with this model."
    limit = {"messages": QUESTION, "max_tokens": 9}
    async with serve(alpha=None, config=clients("ann", "bob", "eve")) as running:
        running["alpha"].answers = refusing("max_tokens", said=said_of)
        for name in ("ann", "bob"):
            assert await said(running, name, limit) == (200, None)
        running["alpha"].answers = refusing("max_completion_tokens", said=said_of)
        assert await said(running, "eve", limit) == (200, None)
        running["alpha"].answers = None
        running["alpha"].script = ANSWERS["chat"]
        for name, field in (("eve", "max_tokens"), ("ann", "max_completion_tokens")):
            await said(running, name, limit)
            assert running["alpha"].received[-1].body[field] == 9


async def test_an_operator_sees_who_met_what_and_can_have_it_forgotten(serve: Serve) -> None:
    keys = clients("ann", "bob")
    keys["clients"]["root"] = {"key_sha256": sha256("hs-root"), "role": "admin"}
    async with serve(alpha=None, config=keys) as running:

        async def asked(method: str, name: str, path: str = "") -> Any:
            url = f"{running.url}/admin/facts{path}"
            async with running.http.request(method, url, headers=bearer(f"hs-{name}")) as response:
                return response.status, await response.json()

        running["alpha"].answers = refusing("reasoning_effort")
        assert (await said(running, "ann"))[0] == 200
        assert (await asked("GET", "ann"))[0] == 403
        [fact] = (await asked("GET", "root"))[1]["data"]
        assert (fact["deployment"], fact["refuses"], fact["clients"]) == ("alpha/m", "reasoning_effort", ["ann"])
        assert (fact["for_all"], fact["why"]) == (False, "400 invalid_request_error")
        assert (await asked("DELETE", "ann", f"/{fact['id']}"))[0] == 403
        assert (await asked("DELETE", "root", f"/{fact['id']}"))[1]["data"] == [fact]
        assert (await asked("DELETE", "root", f"/{fact['id']}"))[0] == 404
        running["alpha"].answers = None
        assert await said(running, "ann") == (200, None)
        assert running["alpha"].received[-1].body["reasoning_effort"] == "low"


async def test_the_leaderboard_tells_what_holds_for_one_client_alone(serve: Serve, logged: list[EventDict]) -> None:
    attack = {"messages": [{"role": "user", "content": "attack"}]}

    def answers(body: Any) -> Sequence[Step]:
        if "attack" in str(body):
            return refused("a secret of the prompt", 403)
        return refusing("reasoning_effort")(body) if "reasoning_effort" in body else ANSWERS["chat"]

    async def row(running: RunningGateway) -> Any:
        async with running.get("/leaderboard", headers=bearer("hs-root")) as response:
            [known] = (await response.json())["models"][0]["deployments"]
        return known["state"], known["held"], known["refuses"]

    keys = clients("ann", "bob", "cid", "eve")
    keys["clients"]["root"] = {"key_sha256": sha256("hs-root"), "role": "admin"}
    async with serve(alpha=None, config=keys) as running:
        running["alpha"].answers = answers
        for name in ("ann", "bob", "cid", "bob", "cid"):
            assert (await said(running, name, {"messages": QUESTION}))[0] == 200
        assert await row(running) == ("ok", [], [])
        assert (await said(running, "ann"))[0] == 200
        assert (await said(running, "eve", attack))[0] == 424
        assert await row(running) == ("ok", ["eve: out, provider_auth (403)"], ["reasoning_effort (for ann alone)"])
        assert (await said(running, "bob"))[0] == 200
        assert await row(running) == ("ok", ["eve: out, provider_auth (403)"], ["reasoning_effort"])
    [line] = [entry for entry in logged if entry["event"] == "steering.held"]
    assert (line["client"], line["deployment"], line["kind"]) == ("eve", "alpha/m", "provider_auth")


async def test_a_client_is_told_that_its_usage_is_not_asked_for(serve: Serve) -> None:
    async with serve(alpha=None) as running:
        running["alpha"].answers = refusing("stream_options")
        for _ in range(2):
            assert await told(running, {"messages": QUESTION, "stream": True}) == (200, "stream_options")


async def test_what_a_probe_meets_holds_for_all_at_once(serve: Serve) -> None:
    limit = {"messages": QUESTION, "max_tokens": 9}
    async with serve(alpha=None, config={**clients("ann", "bob"), **probing("alpha")}) as running:
        running["alpha"].answers = refusing(
            "max_tokens", said="Unsupported parameter: '{}' is not supported with this model."
        )
        assert await said(running, "ann", limit) == (200, None)
        await ended(running)
        known = running.gateway.fleets.learnt("alpha")
        assert known is not None
        assert [each.met.is_for_all for each in known.listed()][:1] == [True]
        asked = len(running["alpha"].received)
        assert await said(running, "bob", limit) == (200, None)
        assert running["alpha"].received[asked].body["max_completion_tokens"] == 9


async def test_what_is_met_with_a_clients_own_key_stays_with_that_key(serve: Serve) -> None:
    config = {**clients("ann", "bob"), "tenant_keys": {"header": True}}
    async with serve(alpha=None, config=config) as running:
        running["alpha"].answers = refusing("reasoning_effort")
        for name in ("ann", "bob"):
            own = bearer(f"hs-{name}") | {"x-holeshot-provider-keys": f"alpha=sk-own-{name}-0123456789abcdef"}
            async with running.chat(own, **EFFORT) as response:
                assert (response.status, response.headers["x-holeshot-dropped"]) == (200, "reasoning_effort")
        known = running.gateway.fleets.learnt("alpha")
        assert known is None or not [*known.listed()]
        asked = len(running["alpha"].received)
        assert await said(running, "ann") == (200, "reasoning_effort")
        assert running["alpha"].received[asked].body["reasoning_effort"] == "low"  # with the operator's it is new


def offering(count: int) -> dict[str, Any]:
    return {
        "messages": QUESTION,
        "tools": [{"type": "function", "function": {"name": f"f{number}"}} for number in range(count)],
    }


def taking_tools(most: int) -> Any:
    words = f"Invalid 'tools': array too long. Expected an array with maximum length {most}, but got more instead."

    def answers(body: Any) -> Sequence[Step]:
        is_more = len(body.get("tools", ())) > most
        return refused(words, code="array_above_max_length") if is_more else ANSWERS["chat"]

    return answers


async def test_a_limit_of_tools_is_met_once_and_then_others_are_asked_first_with_more(serve: Serve) -> None:
    config = {**clients("ann", "bob", "cid"), "models": {MODEL: {"race": {"mode": "single"}}}}
    async with serve(alpha=None, beta=None, config=config) as running:
        running.prefer("alpha", "beta", first_s=5.0)
        running["alpha"].answers = taking_tools(128)
        for _ in range(3):
            assert (await said(running, "ann", offering(150)))[0] == 200
        assert (len(running["alpha"].received), len(running["beta"].received)) == (1, 3)
        assert (await said(running, "ann", offering(128)))[0] == 200  # these it takes
        assert len(running["alpha"].received) == 2
        for name in ("bob", "cid", "bob"):
            assert (await said(running, name, offering(150)))[0] == 200
        assert len(running["alpha"].received) <= 3  # from the second client on it holds for all
        learnt = running.gateway.fleets.learnt("alpha")
        assert learnt is not None
        [known] = learnt.listed()
        assert (known.fact.words, known.met.is_for_all) == ("more than 128 tools", True)


async def test_who_is_alone_is_still_asked_and_what_it_takes_after_all_is_forgotten(serve: Serve) -> None:
    async with serve(alpha=None, config=clients("ann", "bob")) as running:
        running["alpha"].answers = taking_tools(128)
        for sendings in (1, 2):
            assert (await said(running, "ann", offering(150)))[0] == 400
            assert len(running["alpha"].received) == sendings
        running["alpha"].answers = taking_tools(512)
        assert (await said(running, "ann", offering(150)))[0] == 200
        learnt = running.gateway.fleets.learnt("alpha")
        assert learnt is not None
        assert list(learnt.listed()) == []
