"""A name in ``models`` that ends in a star stands for all names that begin so, in front of scripted providers."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.typing import EventDict

from gateway.fleet.answered_names import MOST_NAMES
from gateway.settings import ModelSettings, load
from providers.simulator import Status, answer
from tests.app.gateway.access.test_admission import clients, key_of, status_and_code
from tests.app.gateway.refusals.test_unforced import text_in
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve
from tests.app.gateway.watching.test_refusals import refusals

PATTERN: dict[str, Any] = {"claude-*": {"deployments": ["alpha/claude-*"], "race": {"mode": "single"}}}


def patterns(**more: Any) -> dict[str, Any]:
    return {"models": {**PATTERN, **more}}


async def sent(running: RunningGateway, provider: str = "alpha", **fields: Any) -> list[str]:
    """Make a call, and return the models that ``provider`` was asked for."""
    async with running.chat(**fields) as response:
        assert response.status == 200, await response.text()
        await response.read()
    return [each.body["model"] for each in running[provider].received]


async def test_the_name_that_was_asked_for_is_sent_on(serve: Serve) -> None:
    async with serve(config=patterns()) as running:
        assert await sent(running, model="claude-opus-4-8") == ["claude-opus-4-8"]
        assert (await running.call())["model"] == "claude-opus-4-8"
        [row] = await running.rows("select deployment from attempts")
        assert row["deployment"] == "alpha/claude-opus-4-8"


async def test_the_star_of_a_deployment_becomes_what_the_name_has_in_its_place(serve: Serve) -> None:
    config = patterns(**{"eu-*": {"deployments": ["alpha/eu.anthropic.*-v1:0"]}})
    async with serve(config=config) as running:
        assert await sent(running, model="eu-claude-x") == ["eu.anthropic.claude-x-v1:0"]


async def test_a_deployment_without_a_star_answers_all_names_of_a_pattern(serve: Serve) -> None:
    async with serve(config={"models": {"gpt-*": {"deployments": ["alpha/own"]}}}) as running:
        assert await sent(running, model="gpt-6") == ["own"]


async def test_an_exact_name_wins_over_a_pattern_and_the_longer_pattern_over_the_shorter(serve: Serve) -> None:
    exact = {"deployments": ["alpha/exact"]}
    longer = {"deployments": ["alpha/longer-*"]}
    config = patterns(**{"claude-haiku-5": exact, "claude-haiku-*": longer, "*": {"deployments": ["alpha/any-*"]}})
    async with serve(config=config) as running:
        for name in ("claude-haiku-5", "claude-haiku-6", "claude-x"):
            await sent(running, model=name)
        assert await sent(running, model="gpt") == ["exact", "longer-6", "claude-x", "any-gpt"]


@pytest.mark.parametrize("race", ["race", "hedge", "auto"])
async def test_the_deployments_of_a_pattern_race_as_any_others_within_its_budget(serve: Serve, race: str) -> None:
    both = {"deployments": ["alpha/claude-*", "beta/anthropic.claude-*"], "race": {"mode": race, "budget": 0}}
    raced = {**both, "race": {"mode": "race"}}
    config = {"models": {"claude-*": raced, "claude-cheap-*": both}}
    async with serve(alpha=None, beta=None, config=config) as running:
        running.answer_once_all_are_asked()
        async with running.chat(model="claude-x") as response:
            assert response.headers["x-holeshot-launched"] == "2"
        assert [each.body["model"] for each in running["beta"].received] == ["anthropic.claude-x"]
        for provider in running.providers.values():
            provider.script = answer("Hello")
        async with running.chat(model="claude-cheap-x") as response:
            assert response.headers["x-holeshot-launched"] == "1"


async def test_all_names_of_a_pattern_share_its_budget_and_its_dollars(serve: Serve) -> None:
    priced = {"deployment": "alpha/claude-*", "price_per_mtok": {"input": 1e6, "output": 1e6}}
    config = {"models": {"claude-*": {"deployments": [priced], "usd_per_day": 0.5}}}
    async with serve(config=config) as running:
        async with running.chat(model="claude-a") as response:
            await response.read()
        for name in ("claude-a", "claude-b", "claude-a,claude-b"):
            assert await status_and_code(running.chat(model=name)) == (429, "insufficient_quota")


async def test_max_in_flight_holds_for_all_names_of_a_deployment_with_one_name(serve: Serve) -> None:
    one = {"deployment": "alpha/*", "as": "vllm", "max_in_flight": 3}
    async with serve(config={"models": {"own-*": {"deployments": [one]}}}) as running:
        await sent(running, model="own-a")
        assert running.gateway.context.services.seats.lines.keys() == {"vllm"}
        assert {row["deployment"] for row in await running.rows("select deployment from attempts")} == {"vllm"}


async def test_a_list_of_models_may_have_names_under_patterns(serve: Serve) -> None:
    exact = {"deployments": ["alpha/m"], "race": {"mode": "single"}}
    async with serve(config=patterns(**{MODEL: exact})) as running:
        assert await sent(running, model=f"claude-x, {MODEL}") in (["claude-x"], ["m"])
        async with running.chat(model=f"claude-x,{MODEL}", race={"mode": "race"}) as response:
            assert response.headers["x-holeshot-launched"] == "2"


async def test_a_name_under_a_pattern_falls_back_and_is_a_fallback(serve: Serve) -> None:
    config = {
        "models": {
            "claude-*": {"deployments": ["alpha/claude-*"], "fallbacks": ["small"]},
            "small": {"deployments": ["beta/s"]},
            "first": {"deployments": ["gamma/f"], "fallbacks": ["claude-haiku-5"]},
        }
    }
    async with serve(alpha=[Status(500)], beta=None, gamma=[Status(500)], config=config) as running:
        assert await running.answered_by(model="claude-x") == (200, "small")
        running["alpha"].script = answer("Hello")
        assert await running.answered_by(model="first") == (200, "claude-haiku-5")
        assert running["alpha"].received[-1].body["model"] == "claude-haiku-5"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_claude_under_a_pattern_is_asked_in_its_own_api_with_its_betas(serve: Serve, stream: bool) -> None:
    config = {**patterns(), "providers": {"alpha": {"kind": "anthropic"}}}
    async with serve(config=config) as running:
        asked = {"model": "claude-opus-4-8", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
        headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "context-1m-2025-08-07", "x-api-key": "x"}
        async with running.post(
            {**asked, "stream": stream}, path="/v1/messages?beta=true", headers=headers
        ) as response:
            await response.read()
        [received] = running["alpha"].received
        assert received.path.endswith("/messages")
        assert (received.body["model"], received.headers["anthropic-beta"]) == (
            "claude-opus-4-8",
            "context-1m-2025-08-07",
        )


@pytest.mark.parametrize(
    "name",
    ["claude-*", "claude-../x", "claude-//x", "claude- x", "claude-é", "claude-" + "x" * 400, "claude"],
    ids=lambda name: repr(name[:20]),
)
async def test_what_is_no_name_of_a_model_is_unknown(serve: Serve, name: str) -> None:
    async with serve(config=patterns()) as running:
        async with running.chat(model=name) as response:
            assert response.status == 404
            assert (await response.json())["error"]["code"] == "model_not_found"
        assert running.requests == 0


async def test_an_unknown_model_is_told_which_patterns_there_are(serve: Serve) -> None:
    async with serve(config=patterns()) as running, running.chat(model="zzz") as response:
        assert "known models: claude-*, llama" in (await response.json())["error"]["message"]


async def test_what_no_provider_has_is_the_callers_mistake(serve: Serve) -> None:
    script = [Status(404, b'{"error":{"message":"model: claude-zzz"}}')]
    async with serve(alpha=script, config=patterns()) as running, running.chat(model="claude-zzz") as response:
        error = (await response.json())["error"]
    assert "no provider of 'claude-zzz' has the model" in error["message"]


async def test_a_pattern_is_not_a_way_to_name_deployments(serve: Serve) -> None:
    config = {**clients(plain={}, admin={"adhoc": True}), "models": {"*": {"deployments": ["beta/*"]}}}
    config["models"]["alpha/*"] = {"deployments": ["beta/of-alpha-*"]}
    async with serve(alpha=None, beta=None, config=config) as running:
        assert await status_and_code(running.chat(key_of("plain"), model="beta/x")) == (403, "forbidden")
        async with running.chat(key_of("admin"), model="beta/x") as response:
            assert response.status == 200
        async with running.chat(key_of("plain"), model="alpha/x") as response:
            assert response.status == 200
        assert [each.body["model"] for each in running["beta"].received] == ["x", "of-alpha-x"]


@pytest.mark.parametrize(
    ("models", "open_", "closed"),
    [
        (["claude-opus-4-8"], "claude-opus-4-8", "claude-x"),
        (["claude-*"], "claude-x", MODEL),
        (["claude-haiku-*"], "claude-haiku-5", "claude-x"),
        ([f"{MODEL[:2]}*"], MODEL, "claude-x"),
    ],
    ids=str,
)
async def test_a_clients_list_may_have_names_under_patterns_and_patterns(
    serve: Serve, models: list[str], open_: str, closed: str
) -> None:
    config = {**patterns(), **clients(plain={"models": models})}
    async with serve(config=config) as running:
        async with running.chat(key_of("plain"), model=open_) as response:
            assert response.status == 200
        for name in (closed, f"{open_},{closed}"):
            assert await status_and_code(running.chat(key_of("plain"), model=name)) == (403, "forbidden")
        async with running.get("/v1/models", headers=key_of("plain")) as response:
            ids = [model["id"] for model in (await response.json())["data"]]
        assert ids == ([MODEL] if open_ == MODEL else [])


async def test_the_list_of_models_has_no_pattern_but_each_name_under_one_is_described(serve: Serve) -> None:
    async with serve(config=patterns()) as running:
        async with running.get("/v1/models") as response:
            assert [model["id"] for model in (await response.json())["data"]] == [MODEL]
        async with running.get("/v1/models/claude-opus-4-8") as response:
            described = await response.json()
            assert (described["id"], described["deployments"]) == ("claude-opus-4-8", ["alpha/claude-opus-4-8"])
        async with running.get("/v1/models/claude-*") as response:
            assert response.status == 404


UNKNOWN = Status(404, b'{"error":{"message":"the model does not exist","code":"model_not_found"}}')


async def names_in_the_ledger(running: RunningGateway) -> set[tuple[str, str]]:
    rows = await running.rows(
        "select calls.model, attempts.deployment from calls join attempts on attempts.call_id = calls.id"
    )
    return {(row["model"], row["deployment"]) for row in rows}


async def test_rows_have_invented_names_only_under_their_pattern(serve: Serve) -> None:
    async with serve(config=patterns(small={"deployments": ["alpha/s"]})) as running:
        await sent(running, model="claude-real")
        running["alpha"].script = [UNKNOWN]
        for name in ("claude-real", "claude-invented", "claude-made-up"):
            assert (await running.answered_by(model=name))[0] == 404
        assert await names_in_the_ledger(running) == {
            ("claude-real", "alpha/claude-real"),
            ("claude-*", "alpha/claude-*"),
        }
        running["alpha"].script = answer("Hello")
        await sent(running, model="claude-made-up")
        assert ("claude-made-up", "alpha/claude-made-up") in await names_in_the_ledger(running)


async def test_invented_names_that_a_request_lists_as_fallbacks_are_in_no_row_either(serve: Serve) -> None:
    async with serve(alpha=[UNKNOWN], config=patterns()) as running:
        async with running.chat(models=["claude-one", "claude-two"], model="claude-nil") as response:
            assert response.status == 404
        assert {name for names in await names_in_the_ledger(running) for name in names} == {
            "claude-*", "alpha/claude-*"
        }  # fmt: skip
        rows = await running.rows("select model from attempts where model is not null")
        assert {row["model"] for row in rows} <= {"claude-*"}


async def test_a_server_that_answers_to_any_name_fills_the_ledger_with_a_hundred(serve: Serve) -> None:
    config = {"models": {"own-*": {"deployments": ["alpha/*"], "race": {"mode": "single"}}}}
    async with serve(config=config) as running:
        for number in range(MOST_NAMES + 5):
            async with running.chat(model=f"own-{number}") as response:
                assert response.headers["x-holeshot-deployment"] == f"alpha/{number}"
        names = await names_in_the_ledger(running)
        assert len(names) == MOST_NAMES + 1
        assert ("own-*", "alpha/*") in names


async def test_a_name_that_a_client_invents_is_no_outage(serve: Serve) -> None:
    config = patterns(fixed={"deployments": ["beta/gone"]})
    async with serve(alpha=[UNKNOWN], beta=[UNKNOWN], config=config) as running:
        for name in ("claude-invented", "alpha/invented", "fixed"):
            await running.answered_by(model=name)
        assert [row["deployment"] for row in await running.rows("select deployment from outages")] == ["beta/gone"]


async def test_an_outage_of_a_name_that_has_never_answered_is_that_of_its_pattern(serve: Serve) -> None:
    async with serve(alpha=[Status(401)], config=patterns()) as running:
        await running.answered_by(model="claude-x")
        assert await running.rows("select deployment, model from outages") == [
            {"deployment": "alpha/claude-*", "model": "claude-*"}
        ]


async def test_metrics_have_the_pattern_for_all_of_its_names(serve: Serve) -> None:
    async with serve(config=patterns()) as running:
        for name in ("claude-a", "claude-b"):
            await sent(running, model=name)
        async with running.get("/metrics") as response:
            page = await response.text()
        assert 'holeshot_calls_total{mode="single",model="claude-*",status="200"} 2.0' in page
        assert 'deployment="alpha/claude-*"' in page
        assert "claude-a" not in page


async def test_what_a_pattern_may_start_is_in_the_metrics(serve: Serve) -> None:
    async with serve(config=patterns()) as running, running.get("/metrics") as response:
        assert 'model="claude-*"' in await response.text()


async def test_other_replicas_hear_of_a_name_that_is_asked_for_again(serve: Serve) -> None:
    async with serve(config=patterns()) as running:
        steering = running.gateway.steering
        await sent(running, model="claude-x")
        assert not steering._is_shared("claude-x")
        await sent(running, model="claude-x")
        assert steering._is_shared("claude-x")
        assert steering._is_shared("claude-*")


async def test_a_reload_keeps_what_has_answered_and_takes_new_patterns(serve: Serve) -> None:
    async with serve(config=patterns()) as running:
        await sent(running, model="claude-real")
        settings = running.gateway.context.settings
        models = {**settings.models, "gpt-*": ModelSettings.model_validate({"deployments": ["alpha/gpt-*"]})}
        running.gateway.reload(settings.model_copy(update={"models": models}))
        assert (await sent(running, model="gpt-6"))[-1] == "gpt-6"
        running["alpha"].script = [UNKNOWN]
        await running.answered_by(model="claude-real")
        assert "claude-*" not in {name for name, _ in await names_in_the_ledger(running)}


GUIDE = Path(__file__).parents[4] / "docs" / "guides" / "coding-agents.md"


def of_the_guide() -> dict[str, Any]:
    """Return the models of the guide's file."""
    text = GUIDE.read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    models: dict[str, Any] = yaml.safe_load(text)["models"]
    return models


@pytest.mark.parametrize("whose", ["the guide's", "init's", "init's with three keys"])
@pytest.mark.parametrize("name", ["claude-opus-4-8", "claude-opus-5-5", "claude-haiku-4-5-20251001"])
async def test_claude_as_everybody_starts_it_works_with_the_file(serve: Serve, whose: str, name: str) -> None:
    keys = ["ANTHROPIC_API_KEY"] if whose == "init's" else ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GROQ_API_KEY"]
    written = load(None, dict.fromkeys(keys, "k")).models  # as init writes them
    models = {name: each.model_dump(mode="json", exclude_unset=True, by_alias=True) for name, each in written.items()}
    models = of_the_guide() if whose == "the guide's" else models
    at = {each.partition("/")[0] for each in re.findall(r"[\w]+/[\w.*/-]+", str(models))}
    config = {"models": models, "providers": {each: {"kind": "anthropic"} for each in at if "openai" not in each}}
    async with serve(**dict.fromkeys(sorted({*at, "anthropic"})), config=config) as running:
        running["anthropic"].answers = lambda _: text_in("messages", "Hello")
        asked = {"model": name, "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "x"}]}
        headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "claude-code-20250219", "x-api-key": "x"}
        async with running.post(asked, path="/v1/messages?beta=true", headers=headers) as response:
            assert response.status == 200, await response.text()
            await response.read()
        assert [each.body["model"] for each in running["anthropic"].received] == [name]


async def test_a_near_name_and_a_provider_are_told_in_one_sentence_each(serve: Serve) -> None:
    async with serve(alpha=None) as running:
        near = f"did you mean '{MODEL}'?"
        for asked, said in {
            f"{MODEL}x": f"{near} (its provider before it names any other, as alpha/{MODEL}x)",
            f"x/{MODEL}": f"{near} 'x' is not a configured provider (alpha)",
            "x/quite-another": "'x' is not a configured provider (alpha)",
        }.items():
            async with running.chat(model=asked) as response:
                message = (await response.json())["error"]["message"]
            assert said in message
            assert "?;" not in message


@pytest.mark.parametrize("models", [{}, PATTERN], ids=["exact", "patterns"])
async def test_who_may_name_deployments_hears_how_the_model_of_its_provider_is_named(
    serve: Serve, models: dict[str, Any]
) -> None:
    async with serve(alpha=None, openai=None, config={"models": models}) as running:
        async with running.chat(model="gpt-5") as response:
            assert response.status == 404
            message = (await response.json())["error"]["message"]
        assert "its provider before it names any other, as openai/gpt-5" in message
        async with running.chat(model="openai/gpt-5") as response:
            assert response.status == 200


async def test_who_may_not_name_deployments_does_not_hear_of_them(serve: Serve) -> None:
    async with serve(config=clients(plain={})) as running, running.chat(key_of("plain"), model="gpt-5") as response:
        assert "its provider" not in (await response.json())["error"]["message"]


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("gpt-5", "gpt-5"),
        ("x" * 150, "x" * 100),
        ("sk-proj-" + "a1B2" * 12, "***"),
    ],
    ids=["short", "long", "a key"],
)
async def test_the_log_has_the_name_of_the_model_that_was_refused(
    serve: Serve, logged: list[EventDict], asked: str, shown: str
) -> None:
    async with serve(config=clients(plain={"models": [MODEL]})) as running:
        async with running.chat(key_of("plain"), model=asked) as response:
            assert response.status == 403
        async with running.chat(key_of("plain"), model=MODEL, max_tokens="x") as response:
            assert response.status == 400
    assert {(each["reason"], each.get("model")) for each in refusals(logged)} == {
        ("forbidden", shown), ("invalid_request", None)
    }  # fmt: skip
