"""Clients that bring their own keys of providers: what is asked with them, who pays, and who learns from it."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.typing import EventDict

from gateway.fleet.tenants import MOST_KEPT_A_CLIENT
from providers.simulator import Delta, Gate, Hang, Headers, RoleOnly, Status, Step, answer, error
from tests.app.gateway.collector import collecting
from tests.app.gateway.key_desk import bearer, sha256
from tests.app.gateway.keys.test_secrets import BOTH, ECHOES, KEY, holding
from tests.app.gateway.races.test_audits import audited
from tests.app.gateway.responses.test_kept_responses import keeper
from tests.app.gateway.responses.test_responses_socket import SPEAKS, connected, said
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, chat_body, read, single
from tests.app.gateway.watching.test_live import look
from tests.app.gateway.watching.test_tracing import traced

HEADER = "x-holeshot-provider-keys"
ON: Mapping[str, Any] = {"tenant_keys": {"header": True}}
PRICES = {"price_per_mtok": {"input": 10.0, "output": 10.0}}
TWO: Mapping[str, Any] = {"models": {MODEL: {"deployments": ["alpha/m", "beta/m"]}}}
APP = {"app": {"key_sha256": sha256("hs-app")}}


def brings(said: str = f"alpha={KEY}") -> dict[str, str]:
    return {HEADER: said}


def sent_to(running: RunningGateway, provider: str) -> list[str]:
    """Return the keys that a provider has received, in order."""
    return [each.key for each in running[provider].received]


def by_user(**scripts: Sequence[Step]) -> Any:
    """Answer by the field ``user`` of the body."""
    return lambda body: scripts.get(body.get("user", ""), answer("Hello"))


async def asked(running: RunningGateway, headers: Mapping[str, str], **fields: Any) -> tuple[int, Any]:
    async with running.chat(headers, **fields) as response:
        return response.status, await response.json()


@BOTH
async def test_a_call_is_asked_with_the_key_that_it_brings_and_with_no_other(serve: Serve, stream: bool) -> None:
    async with serve(alpha=None, beta=None, config=ON) as running:
        async with running.chat(brings(), stream=stream) as response:
            assert response.status == 200
            await response.read()
        assert sent_to(running, "alpha") == [KEY]
        assert running["beta"].received == []  # it brought no key for it
        assert HEADER not in running["alpha"].received[0].headers
        [row] = await running.rows("select key_name, deployment, outcome from attempts")
        assert row == {"key_name": "tenant", "deployment": "alpha/m", "outcome": "won"}
        async with running.chat() as response:  # the next one brings none
            assert response.status == 200
    assert "upstream-alpha-secret" in sent_to(running, "alpha") or sent_to(running, "beta") == ["upstream-beta-secret"]


async def test_keys_of_several_providers_race_each_other(serve: Serve) -> None:
    async with serve(alpha=None, beta=None, config=ON) as running:
        running.answer_once_all_are_asked()
        async with running.chat(brings('{"alpha": "key,a", "beta": "key=b"}'), stream=True) as response:
            await response.read()
        assert (sent_to(running, "alpha"), sent_to(running, "beta")) == (["key,a"], ["key=b"])
        rows = await running.rows("select key_name, outcome from attempts order by outcome")
        assert {row["key_name"] for row in rows} == {"tenant"}
        assert len(rows) == 2


async def test_where_both_are_allowed_the_operators_keys_serve_the_other_providers(serve: Serve) -> None:
    both = {"tenant_keys": {"header": True, "mixed": True}}
    async with serve(alpha=None, beta=None, config=both) as running:
        running.answer_once_all_are_asked()
        async with running.chat(brings(), stream=True) as response:
            await response.read()
        assert (sent_to(running, "alpha"), sent_to(running, "beta")) == ([KEY], ["upstream-beta-secret"])
        rows = await running.rows("select provider, key_name from attempts order by provider")
        assert [(row["provider"], row["key_name"]) for row in rows] == [("alpha", "tenant"), ("beta", None)]


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("gorq=sk-secret-of-mine", "names a provider that is not configured here; known: alpha"),
        ("sk-secret-of-mine", "must read 'provider=key"),
        ("alpha=", "the key for 'alpha' is empty"),
        ("alpha=sk secret-of-mine", "has a blank"),
        ("alpha=sk-secret-of-mine, alpha=another", "names 'alpha' twice: send one key for each provider"),
        ("alpha=sk-secret-of-mine, alpha=sk-secret-of-mine", "names 'alpha' twice"),
        ('{"alpha": "sk-secret-of-mine", "alpha": "another"}', "names 'alpha' twice"),
        ('{"alpha": "sk-secret-of-mine", "al\\u0070ha": "another"}', "names 'alpha' twice"),
        ('{"alpha": 5}', "not a JSON object of strings"),
        ('{"alpha": "sk\\nsecret-of-mine"}', "has a blank"),
        ("{}", "must have 1 to 64 keys"),
        ("alpha=\u00fcsecret-of-mine", "another character of no key"),
    ],
)
async def test_a_header_that_cannot_be_used_is_refused_and_not_repeated(serve: Serve, said: str, problem: str) -> None:
    async with serve(alpha=None, config=ON) as running:
        status, told = await asked(running, brings(said))
        assert (status, told["error"]["code"], told["error"]["param"]) == (400, "invalid_request", HEADER)
        assert problem in told["error"]["message"]
        assert "secret-of-mine" not in repr(told)
        body = {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
        async with running.post(body, path="/v1/messages", headers=brings(said)) as response:
            assert (response.status, (await response.json())["type"]) == (400, "error")
        assert running.requests == 0


async def test_a_header_that_the_operator_has_not_turned_on_is_refused(serve: Serve) -> None:
    async with serve(alpha=None) as running:
        status, told = await asked(running, brings())
        assert (status, told["error"]["param"]) == (400, HEADER)
        assert "tenant_keys: { header: true }" in told["error"]["message"]
        assert KEY not in repr(told)
        assert running.requests == 0


async def test_a_model_without_a_provider_for_the_keys_says_which_it_needs(serve: Serve) -> None:
    config = {**ON, "models": {MODEL: {"deployments": ["beta/m"]}}}
    async with serve(alpha=None, beta=None, config=config) as running:
        status, told = await asked(running, brings())
        assert (status, told["error"]["code"]) == (400, "unsupported_by_deployments")
        assert "beta/m needs a key for beta" in told["error"]["message"]
        assert running.requests == 0


async def test_a_fallback_for_whose_provider_a_key_is_brought_answers(serve: Serve) -> None:
    models = {MODEL: {"deployments": ["beta/m"], "fallbacks": ["spare"]}, "spare": {"deployments": ["alpha/m"]}}
    async with serve(alpha=None, beta=None, config={**ON, "models": models}) as running:
        assert (await asked(running, brings()))[0] == 200
        assert sent_to(running, "alpha") == [KEY]


async def test_a_key_that_may_not_ask_the_model_is_told_as_a_missing_model(serve: Serve) -> None:
    async with serve(alpha=None, config={**ON, **single()}) as running:
        running["alpha"].script = [Status(403, error("Project `p` does not have access to model `m`"))]
        status, told = await asked(running, brings())
        assert (status, told["error"]["code"]) == (404, "model_not_found")


async def test_a_refused_key_is_its_clients_matter_and_hurts_nobody_else(serve: Serve, logged: list[EventDict]) -> None:
    async with serve(alpha=None, config={**ON, **single()}) as running:
        running["alpha"].answers = by_user(bad=[Status(401, error("no such key"))])
        for _ in range(4):
            status, told = await asked(running, brings("alpha=bad-key-1"), user="bad")
            assert (status, told["error"]["code"]) == (401, "provider_key_refused")
            assert told["error"]["type"] == "authentication_error"
        for headers in (brings("alpha=good-key-1"), {}):
            assert (await asked(running, headers))[0] == 200
        clock = running.gateway.context.services.clock
        assert running.gateway.steering.health_of("alpha/m").condition(clock()).state == "ok"
    assert {entry["event"] for entry in logged}.isdisjoint({"steering.out", "steering.opened", "steering.limited"})


async def test_a_rate_limit_of_one_key_pauses_neither_another_nor_the_operators(serve: Serve) -> None:
    async with serve(alpha=None, config={**ON, **single()}) as running:
        running["alpha"].answers = by_user(busy=[Status(429, error("slow down"), {"retry-after": "30"})])
        for _ in range(3):
            status, told = await asked(running, brings("alpha=busy-key"), user="busy")
            assert status == 429, told
        for headers in (brings("alpha=idle-key"), {}):
            assert (await asked(running, headers))[0] == 200
        health = running.gateway.steering.health_of("alpha/m")
        assert health.cooling_s(running.gateway.context.services.clock()) == 0.0


async def test_failures_with_a_clients_key_open_no_breaker_of_others(serve: Serve) -> None:
    async with serve(alpha=None, config={**ON, **single()}) as running:
        running["alpha"].answers = by_user(broken=[Status(500, error("broken account"))])
        for _ in range(8):
            assert (await asked(running, brings("alpha=broken-key"), user="broken"))[0] == 502
        assert not running.gateway.steering.health_of("alpha/m").tripped
        assert (await asked(running, {}))[0] == 200


async def test_a_call_with_its_own_key_costs_the_operator_nothing(serve: Serve) -> None:
    models = {MODEL: {"deployments": [{"deployment": "alpha/m", **PRICES}], "usd_per_day": 0.05}}
    clients = {"app": {**APP["app"], "usd_per_day": 0.05, "rpm": 100000}}
    config = {**ON, "models": models, "clients": clients}
    async with serve(alpha=None, config=config, in_one_minute=True) as running:
        while (await asked(running, bearer("hs-app")))[0] == 200:  # until the operator's dollars are spent
            pass
        spent = await running.rows("select sum(cost_usd) as usd from calls")
        for _ in range(3):
            async with running.chat({**bearer("hs-app"), **brings()}) as response:
                assert response.status == 200
                await response.read()
            assert float(response.headers["x-holeshot-cost-usd"]) > 0.0
        assert (await asked(running, bearer("hs-app")))[0] == 429
        assert await running.rows("select sum(cost_usd) as usd from calls") == spent
        paid = await running.rows("select cost_usd from attempts where key_name = 'tenant'")
        assert len(paid) == 3
        assert all(row["cost_usd"] > 0.0 for row in paid)


async def test_a_restart_does_not_count_what_clients_keys_have_cost(serve: Serve) -> None:
    models = {MODEL: {"deployments": [{"deployment": "alpha/m", **PRICES}], "usd_per_day": 0.05}}
    clients = {"app": {**APP["app"], "usd_per_day": 0.05}}
    config = {**ON, "models": models, "clients": clients}
    async with serve(alpha=None, config=config) as running:
        for _ in range(3):
            assert (await asked(running, {**bearer("hs-app"), **brings()}))[0] == 200
        [row] = await running.rows("select sum(cost_usd) as usd, sum(race_cost_usd) as race from rollup_calls")
        assert row == {"usd": 0.0, "race": None}
        config |= {"database_url": running.config["database_url"], "spool_dir": str(running.folder / "again")}
    async with serve(alpha=None, config=config) as running:
        assert (await asked(running, bearer("hs-app")))[0] == 200


async def test_other_limits_count_a_call_with_its_own_key(serve: Serve) -> None:
    config = {**ON, "clients": {"app": {**APP["app"], "rpm": 2}}}
    async with serve(alpha=None, config=config, in_one_minute=True) as running:
        statuses = [(await asked(running, {**bearer("hs-app"), **brings()}))[0] for _ in range(3)]
    assert statuses == [200, 200, 429]


async def test_a_client_may_have_its_keys_in_its_settings(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "their-key"
    path.write_text("key-in-a-file\n")
    clients = {
        "app": {**APP["app"], "provider_keys": {"alpha": f"file:{path}"}},
        "bob": {"key_sha256": sha256("hs-bob")},
    }
    async with serve(alpha=None, config={"clients": clients}) as running:
        assert (await asked(running, bearer("hs-app")))[0] == 200
        assert (await asked(running, bearer("hs-bob")))[0] == 200
        assert sent_to(running, "alpha") == ["key-in-a-file", "upstream-alpha-secret"]
        path.write_text("another-key\n")
        running.gateway.reload(read(running.config, running.folder))
        assert (await asked(running, bearer("hs-app")))[0] == 200
        assert sent_to(running, "alpha")[-1] == "another-key"
        assert "another-key" not in repr([running.gateway.context.settings, running.gateway.context.admission])
        running.gateway.reload(read({**running.config, **ON}, running.folder))
        assert (await asked(running, {**bearer("hs-app"), **brings()}))[0] == 200
        assert sent_to(running, "alpha")[-1] == KEY  # that of the request goes before


@BOTH
@pytest.mark.parametrize("script", ECHOES.values(), ids=ECHOES)
async def test_a_clients_key_that_its_provider_echoes_goes_no_further(
    serve: Serve, logged: list[EventDict], script: Sequence[Step], stream: bool
) -> None:
    config = {**ON, "providers": {"alpha": {"api_key": "another-one"}}}
    async with serve(alpha=script, config=config) as running:
        async with running.chat(brings(), stream=stream) as response:
            answered = [await response.text(), str(response.headers)]
        assert sent_to(running, "alpha") == [KEY]
        rows = await running.rows("select * from attempts") + await running.rows("select * from calls")
        places: dict[str, Any] = {"answers": answered, "log": logged, "rows": rows}
        for path in ("/metrics", "/leaderboard", "/health/ready", "/v1/models"):
            async with running.get(path) as told:
                places[path] = await told.text()
        context = running.gateway.context
        places["reprs"] = [context.settings, context.fleet, running.gateway, vars(context), vars(context.fleet)]
        for place, content in places.items():
            assert KEY not in repr(content), place
        assert holding(running.folder, KEY) == set()


async def test_a_clients_key_is_in_no_span_and_in_no_live_event(serve: Serve, logged: list[EventDict]) -> None:
    script = [Headers({"x-request-id": KEY}), RoleOnly(), Delta("Hi")]
    async with collecting() as collector:
        async with serve(alpha=script, config={**ON, **traced(collector)}) as running, look(running) as watcher:
            async with running.chat(brings(), stream=True) as response:
                await response.read()
            await watcher.seen("done", 1)
            told = repr(watcher.events)
        assert collector.calls
        assert KEY not in repr([collector.spans, collector.bodies, told, logged])


async def test_a_stored_response_belongs_to_the_key_that_made_it(serve: Serve) -> None:
    async with keeper() as (base_url, seen):
        config = {
            **ON,
            "clients": APP,
            "providers": {"keeper": {"base_url": base_url, "api_key": "k", "apis": ["responses"]}},
            "models": {MODEL: {"deployments": ["keeper/m"]}},
        }
        own, other = ({**bearer("hs-app"), **brings(f"keeper=key-{number}")} for number in (1, 2))
        async with serve(config=config) as running:
            body = {"model": MODEL, "input": "Hi", "store": True}
            async with running.post(body, path="/v1/responses", headers=own) as response:
                assert response.status == 200
            for headers, shown, continued in ((other, 404, 400), (bearer("hs-app"), 404, 400), (own, 200, 200)):
                async with running.get("/v1/responses/resp_abc", headers=headers) as response:
                    assert response.status == shown
                following = {**body, "previous_response_id": "resp_abc"}
                async with running.post(following, path="/v1/responses", headers=headers) as response:
                    assert response.status == continued
            assert len(seen) == 1


async def test_embeddings_are_asked_with_it_too(serve: Serve) -> None:
    async with serve(alpha=None, beta=None, config={**ON, **TWO}) as running:
        async with running.post({"model": MODEL, "input": "x"}, path="/v1/embeddings", headers=brings()) as response:
            assert response.status == 200, await response.text()
        assert (sent_to(running, "alpha"), running["beta"].received) == ([KEY], [])
        [row] = await running.rows("select key_name from attempts")
        assert row["key_name"] == "tenant"


async def test_turns_of_a_websocket_are_asked_with_the_key_of_its_handshake(serve: Serve) -> None:
    async with (
        serve(alpha=[said("Hi")], config={**ON, **SPEAKS}) as running,
        connected(running, headers=brings()) as socket,
    ):
        await socket.turn()
        assert sent_to(running, "alpha") == [KEY]


@pytest.mark.parametrize(
    ("api", "path", "body"),
    [
        ("messages", "/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}),
        ("responses", "/v1/responses", {"input": "Hi"}),
        ("completions", "/v1/completions", {"prompt": "Hi"}),
    ],
)
async def test_every_dialect_is_asked_with_it(serve: Serve, api: str, path: str, body: dict[str, Any]) -> None:
    del api
    async with serve(alpha=None, config=ON) as running:
        async with running.post({"model": MODEL, **body}, path=path, headers=brings()) as response:
            await response.read()
        assert sent_to(running, "alpha") == [KEY]


async def test_the_list_of_models_has_those_that_the_keys_are_for(serve: Serve) -> None:
    models = {MODEL: {"deployments": ["alpha/m", "beta/m"]}, "other": {"deployments": ["beta/x"]}}
    async with serve(alpha=None, beta=None, config={**ON, "models": models}) as running:
        async with running.get("/v1/models", headers=brings()) as response:
            listed = {each["id"]: each["deployments"] for each in (await response.json())["data"]}
        assert listed == {MODEL: ["alpha/m"]}
        async with running.get("/v1/models") as response:
            assert {each["id"] for each in (await response.json())["data"]} == {MODEL, "other"}


async def test_what_is_the_operators_at_a_provider_does_not_go_with_anothers_key(serve: Serve) -> None:
    own = {"organization": "org-operator", "headers": {"X-API-Key": "operators-own", "x-zone": "eu"}}
    extra = {"deployment": "alpha/m", "extra_headers": {"authorization": "Bearer operators-own", "x-team": "a"}}
    config = {**ON, "providers": {"alpha": own}, "models": {MODEL: {"deployments": [extra]}}}
    async with serve(alpha=None, config=config) as running:
        assert (await asked(running, brings()))[0] == 200
        [received] = running["alpha"].received
    headers = {name.lower(): value for name, value in received.headers.items()}
    assert "operators-own" not in repr(headers)
    assert "openai-organization" not in headers
    assert (headers["authorization"], headers["x-zone"], headers["x-team"]) == (f"Bearer {KEY}", "eu", "a")


async def test_two_tenants_side_by_side_never_meet(serve: Serve) -> None:
    async with serve(alpha=None, config={**ON, **single()}) as running:
        running["alpha"].answers = lambda body: answer(body["user"])
        users = [f"user-{number}" for number in range(40)]

        async def one(user: str) -> str:
            _, told = await asked(running, brings(f"alpha=key-of-{user}"), user=user)
            return str(told["choices"][0]["message"]["content"])

        assert await asyncio.gather(*map(one, users)) == users
        pairs = {(each.body["user"], each.headers["authorization"]) for each in running["alpha"].received}
    assert pairs == {(user, f"Bearer key-of-{user}") for user in users}


async def test_a_provider_without_a_key_of_the_operators_is_configured_for_those_who_bring_one(serve: Serve) -> None:
    config = {**ON, "providers": {"alpha": {"preset": "openai", "api_key": None}}}
    async with serve(alpha=None, config=config) as running, running.post(chat_body(), headers=brings()) as response:
        assert response.status == 200
    assert sent_to(running, "alpha") == [KEY]


@pytest.mark.parametrize(
    "provider",
    [
        {"kind": "litellm", "preset": "openai"},
        {"api_key": None},
        {"preset": "vllm", "api_key": None},
        {"preset": "vertex_openai"},
        {"api_key": None, "headers": {"x-gateway-pass": "operators-own"}},
    ],
)
async def test_no_key_is_taken_for_a_provider_that_may_not_look_at_it(serve: Serve, provider: dict[str, Any]) -> None:
    async with serve(alpha=None, config={**ON, "providers": {"alpha": provider}}) as running:
        status, told = await asked(running, brings())
        assert (status, told["error"]["param"]) == (400, HEADER)
        assert running["alpha"].received == []


async def test_no_header_or_field_of_the_operators_account_goes_with_anothers_key(serve: Serve) -> None:
    secret = "0123456789abcdef-operators-own"
    own = {"headers": {"X-Gateway-Pass": secret, "x-beta-access-token": "operators-own", "anthropic-beta": "a-b" * 9}}
    body = {"vertex_credentials": "operators-own", "mcp": [{"apiKey": "operators-own"}], "top_k": 3, "max_tokens": 9}
    extra = {"deployment": "alpha/m", "extra_headers": {"x-session-id": "operators-own"}, "extra_body": body}
    config = {**ON, "providers": {"alpha": own}, "models": {MODEL: {"deployments": [extra]}}}
    async with serve(alpha=None, config=config) as running:
        assert (await asked(running, brings()))[0] == 200
        [received] = running["alpha"].received
    assert "operators-own" not in repr([received.headers, received.body])
    assert received.headers["anthropic-beta"] == "a-b" * 9
    assert (received.body["top_k"], received.body["max_tokens"]) == (3, 9)


async def test_a_key_longer_than_any_is_refused(serve: Serve) -> None:
    async with serve(alpha=None, config=ON) as running:
        assert (await asked(running, brings(f"alpha={'k' * 512}")))[0] == 200
        status, told = await asked(running, brings(f"alpha={'k' * 513}"))
        assert status == 400
        assert "longer than 512 characters" in told["error"]["message"]


async def test_a_plan_and_the_list_of_models_open_nothing_for_a_key(serve: Serve) -> None:
    one = {"deployments": ["alpha/m", "beta/m"], "race": {"mode": "single"}}
    async with serve(alpha=None, beta=None, config={**ON, "models": {MODEL: one}}) as running:
        kept = running.gateway.context.fleet._of_tenants._kept
        both = brings(f"alpha={KEY}, beta={KEY}")
        async with running.get("/v1/models", headers=both) as response:
            assert response.status == 200
        assert kept == {}
        assert (await asked(running, both))[0] == 200
        assert len(kept) == 1


async def test_what_was_stored_with_the_operators_key_under_another_name_is_not_of_who_brings_one(serve: Serve) -> None:
    async with keeper() as (base_url, seen):
        config = {
            **ON,
            "clients": APP,
            "providers": {"keeper": {"base_url": base_url, "api_key": "k", "apis": ["responses"]}},
            "models": {MODEL: {"deployments": [{"deployment": "keeper/m", "as": "other/m"}]}},
        }
        async with serve(config=config) as running:
            body = {"model": MODEL, "input": "Hi", "store": True}
            async with running.post(body, path="/v1/responses", headers=bearer("hs-app")) as response:
                assert response.status == 200
            for headers, status in ((brings("keeper=key-1"), 404), ({}, 200)):
                async with running.get("/v1/responses/resp_abc", headers={**bearer("hs-app"), **headers}) as response:
                    assert response.status == status
            assert len(seen) == 1


async def test_a_client_learns_and_uses_no_provider_that_it_may_not_see(serve: Serve) -> None:
    config = {**ON, "clients": {"app": {**APP["app"], "ignore": ["beta"]}}}
    async with serve(alpha=None, beta=None, config=config) as running:
        for said in ("gorq=some-key-1", "beta=some-key-1"):
            status, told = await asked(running, {**bearer("hs-app"), **brings(said)})
            assert status == 400
            assert told["error"]["message"].endswith("known: alpha")


async def test_a_request_without_a_model_gets_one_that_its_keys_are_for(serve: Serve) -> None:
    models = {f"of-{name}": {"deployments": [f"{name}/omni-moderation-latest"]} for name in ("alpha", "beta")}
    config = {**ON, "providers": {key: {"apis": ["moderations"]} for key in ("alpha", "beta")}, "models": models}
    async with serve(alpha=None, beta=None, config=config) as running:
        both = brings(f"alpha={KEY}, beta={KEY}")
        async with running.post({"input": "Hi"}, path="/v1/moderations", headers=both) as response:
            assert "name one of of-alpha, of-beta" in await response.text()
        async with running.post({"input": "Hi"}, path="/v1/moderations", headers=brings()) as response:
            await response.read()
        assert {row["model"] for row in await running.rows("select model from calls")} == {"of-alpha"}


async def test_dollars_are_held_where_the_operators_keys_may_follow_a_clients(serve: Serve) -> None:
    deployments = [{"deployment": "alpha/m", **PRICES}, {"deployment": "beta/m", **PRICES}]
    models = {MODEL: {"deployments": deployments, "usd_per_day": 1e-6, "race": {"mode": "single"}}}
    config = {"tenant_keys": {"header": True, "mixed": True}, "models": models}
    async with serve(alpha=None, beta=None, config=config) as running:
        running.prefer("alpha", "beta")
        status, told = await asked(running, brings())
        assert (status, running["beta"].received) == (429, []), told


async def test_an_audited_loser_with_a_clients_key_costs_the_operator_nothing(serve: Serve) -> None:
    priced = {"deployments": [{"deployment": f"{name}/m", **PRICES} for name in ("slow", "fast")]}
    config = {**ON, "models": {MODEL: {**priced, "race": {"audit_share": 1.0}}}}
    go_on = asyncio.Event()
    async with serve(slow=[Gate(go_on), Delta("late"), Hang()], fast=None, config=config) as running:
        running.prefer("slow", "fast")
        running["fast"].script = [Gate(running["slow"].requested), *answer("from fast")]
        async with running.chat(brings(f"slow={KEY}, fast={KEY}"), stream=True) as response:
            await response.read()
        go_on.set()
        assert (await audited(running))["cost_usd"]
        async with running.get("/metrics") as told:
            spent = [line for line in (await told.text()).splitlines() if line.startswith("holeshot_cost_usd")]
    assert spent
    assert {float(line.rpartition(" ")[2]) for line in spent} == {0.0}


@pytest.mark.parametrize("unpriced", [True, False])
async def test_what_a_clients_own_key_costs_need_not_be_known(serve: Serve, unpriced: bool) -> None:
    alpha = {"deployment": "alpha/m"} if unpriced else {"deployment": "alpha/m", **PRICES}
    models = {MODEL: {"deployments": [alpha, {"deployment": "beta/m", **PRICES}], "race": {"mode": "single"}}}
    clients = {"app": {**APP["app"], "usd_per_day": 5.0, "unpriced": "refuse"}}
    config = {"tenant_keys": {"header": True, "mixed": True}, "models": models, "clients": clients}
    async with serve(alpha=None, beta=None, config=config) as running:
        running.prefer("alpha", "beta")
        async with running.chat({**bearer("hs-app"), **brings()}, web_search_options={}) as response:
            assert response.status == 200, await response.text()
        assert sent_to(running, "alpha") == [KEY]


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_made_up_keys_hold_few_connections_and_a_running_call_of_one_let_go_ends_as_it_should(
    serve: Serve,
) -> None:
    go_on = asyncio.Event()
    script = by_user(long=[Delta("one"), Gate(go_on), Delta(" two"), *answer(" three")])
    config = {**ON, "clients": APP}
    async with serve(alpha=None, config=config) as running:
        running["alpha"].answers = script

        async with running.chat({**bearer("hs-app"), **brings()}, user="long", stream=True) as response:
            assert b"one" in await response.content.readany()
            before, most = descriptors(), 0
            for number in range(300):
                key = brings(f"alpha=made-up-{number}")
                assert (await asked(running, {**bearer("hs-app"), **key}))[0] == 200
                most = max(most, descriptors() - before)
            assert 0 < most <= 2 * MOST_KEPT_A_CLIENT + 10  # both ends of each connection are in this process
            go_on.set()
            assert b" three" in await response.read()


OWN = "key-of-another-account"


async def test_what_a_clients_key_has_taught_is_known_with_that_key_alone(serve: Serve) -> None:
    said = "`response_format` does not support streaming"
    fields = {"response_format": {"type": "json_object"}}
    received: list[tuple[bool, str]] = []

    def answered(body: Any) -> Sequence[Step]:
        own = sent_to(running, "alpha")[-1] == OWN
        received.append((own, body["stream"]))
        return [Status(400, error(said))] if own and body["stream"] else answer("Hello")

    async with serve(alpha=None, config=ON) as running:
        running["alpha"].answers = answered
        for headers in (brings(f"alpha={OWN}"), brings(f"alpha={OWN}"), {}, brings(f"alpha={OWN}")):
            assert (await asked(running, headers, **fields))[0] == 200
    assert received == [(True, True), (True, False), (True, False), (False, True), (True, False)]


async def test_nor_is_the_length_that_its_account_refuses(serve: Serve) -> None:
    long = "This model's maximum context length is 100 tokens, your prompt has 200. context_length_exceeded"
    async with serve(alpha=None, config=ON) as running:
        running["alpha"].answers = lambda _: (
            [Status(400, error(long))] if sent_to(running, "alpha")[-1] == OWN else answer("Hello")
        )
        fields = {"messages": [{"role": "user", "content": "word " * 200}]}
        assert (await asked(running, brings(f"alpha={OWN}"), **fields))[0] == 400
        async with running.get("/leaderboard") as response:
            [row] = (await response.json())["models"][0]["deployments"]
        assert not row.get("refuses")
        assert (await asked(running, {}, **fields))[0] == 200
