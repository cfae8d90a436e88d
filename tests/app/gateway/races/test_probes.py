"""Probes over sockets: quiet deployments are probed, users' figures know nothing of it."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.app import prober
from gateway.core.records import NotProbed
from providers.simulator import Delta, ErrorEvent, Gate, Hang, Reasoning, Status, Step, answer
from tests.app.gateway.running_gateway import RunningGateway, Serve, read
from tests.app.gateway.watcher import watching
from tests.patience import eventually, until

pytestmark = pytest.mark.usefixtures("views")  # what users are shown is compared, errors too

PRICE = {"input": 1.0, "output": 2.0}


def probing(
    *names: str, price: dict[str, float] | None = PRICE, model: dict[str, Any] | None = None, **settings: Any
) -> dict[str, Any]:
    """Return a configuration that probes deployments after a second."""
    deployments = [
        {"deployment": f"{name}/m", **({} if price is None else {"price_per_mtok": price})} for name in names
    ]
    return {
        "probes": {"enabled": True, "quiet_s": 1, **settings},
        "models": {"llama": {"deployments": deployments, **(model or {})}},
    }


async def ended(running: RunningGateway, number: int = 1) -> list[dict[str, Any]]:
    """Return the probes once so many have ended."""

    async def enough() -> list[dict[str, Any]]:
        rows = await running.rows("select * from probes where ended_at is not null order by started_at")
        return rows if len(rows) >= number else []

    return await eventually(enough)


async def test_a_quiet_deployment_is_probed_and_recorded(serve: Serve) -> None:
    async with serve(config=probing("alpha"), alpha=None) as running:
        [first, *_] = await ended(running)
        assert first["outcome"] == "answered"
        assert first["ttft_ms"] > 0
        assert 0 < first["cost_usd"] < first["reserved_usd"] < 0.001
        [attempt] = await running.rows(f"select * from attempts where call_id = '{first['id']}'")
        assert (attempt["role"], attempt["number"], attempt["client"]) == ("probe", 0, None)
        assert attempt["cost_usd"] == first["cost_usd"]
        assert not await running.rows("select * from calls")


@pytest.mark.parametrize("refusal", [Status(429, headers={"retry-after": "30"}), Status(401)], ids=["limited", "dead"])
async def test_a_probe_whose_first_key_is_refused_is_answered_with_the_next(serve: Serve, refusal: Status) -> None:
    ring = {"api_key": None, "api_keys": ["key-one-0123456789", "key-two-0123456789"]}
    async with serve(config={**probing("alpha"), "providers": {"alpha": ring}}, alpha=None) as running:
        running["alpha"].once([refusal])
        of_refused = "id in (select call_id from attempts where error_kind = 'key_refused') and ended_at is not null"
        [probe] = await eventually(lambda: running.rows(f"select * from probes where {of_refused}"))
        assert (probe["outcome"], probe["error_kind"]) == ("answered", None)
        rows = await running.rows(f"select * from attempts where call_id = '{probe['id']}' order by launch_offset_ms")
        assert [(each["role"], each["number"], each["error_kind"]) for each in rows] == [
            ("probe", 0, "key_refused"),
            ("probe", 0, None),
        ]
        samples = await running.rows("select is_late, is_error, token_ms is not null as has_token from samples")
        assert {tuple(each.values()) for each in samples} == {(0, 0, 0), (0, 0, 1)}


async def test_a_probe_is_answered_while_its_providers_key_is_replaced(serve: Serve) -> None:
    async with serve(config=probing("alpha"), alpha=None) as running:
        alpha = running["alpha"]

        def to_former(_: Any) -> Sequence[Step]:
            return [Status(401)] if alpha.received[-1].headers["authorization"] == "Bearer new" else answer("Hello")

        alpha.answers = to_former
        running.replace_key("alpha", "new")
        of_refused = "id in (select call_id from attempts where error_kind = 'key_refused') and ended_at is not null"
        [probe, *_] = await eventually(lambda: running.rows(f"select * from probes where {of_refused}"))
        assert (probe["outcome"], probe["error_kind"]) == ("answered", None)
        rows = await running.rows(f"select * from attempts where call_id = '{probe['id']}' order by launch_offset_ms")
        assert [(each["role"], each["error_kind"], each["sends"]) for each in rows] == [
            ("probe", "key_refused", 1),
            ("probe", None, 1),
        ]


async def test_a_probe_whose_form_is_refused_is_answered_in_another(serve: Serve) -> None:
    refused = (
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    )
    async with serve(config=probing("alpha"), alpha=None) as running:
        running["alpha"].once([Status(400, {"error": {"message": refused, "type": "invalid_request_error"}})])
        of_refused = "id in (select call_id from attempts where error_kind = 'form_refused') and ended_at is not null"
        [probe] = await eventually(lambda: running.rows(f"select * from probes where {of_refused}"))
        assert (probe["outcome"], probe["error_kind"]) == ("answered", None)
        rows = await running.rows(f"select * from attempts where call_id = '{probe['id']}'")
        assert {(each["role"], each["error_kind"], each["sends"]) for each in rows} == {
            ("probe", "form_refused", 1),
            ("probe", None, 1),
        }


# What users are shown of their own calls: no probe may change any of it.
OF_USERS = (
    "calls", "rollup_calls", "rollup_tags",
    *(f"{view}{window}" for view in ("race_value", "client_usage") for window in ("", "_24h", "_30d")),
    *(f"{view}{window}" for view in ("waste", "answer_quality") for window in ("_24h", "_30d")),
    "race_value_1h", "tag_values", "tag_values_30d", "cache_value", "cache_value_30d", "slo", "slo_30d",
    "tag_differences", "load_5m", "load_peaks", "cache_latency_24h", "refusals_24h", "gaps_24h",
)  # fmt: skip
APIS = ("/api/calls", "/api/usage", "/api/race-value", "/api/refusals")


async def shown(running: RunningGateway) -> dict[str, Any]:
    """Return what users are shown, by view and path."""
    found: dict[str, Any] = {}
    for view in OF_USERS:
        rows = await running.rows(f"select * from {view}")
        found[view] = sorted(str(_rounded(row)) for row in rows)
    for path in APIS:
        async with running.get(path) as response:
            assert response.status == 200
            answer = await response.json()
        found[path] = _lasting(answer)
    return found


def _lasting(value: Any) -> Any:
    """Return an answer without what goes on with the clock: instants, statements, and steps in which nothing was."""
    if isinstance(value, dict):
        passing = {"since", "until", "as_of"}
        return {name: _lasting(one) for name, one in value.items() if name not in passing and not name.endswith("sql")}
    if isinstance(value, list):
        return (
            [_lasting(one) for one in value if one not in {None, 0}] if _is_flat(value) else list(map(_lasting, value))
        )
    return value


def _is_flat(values: list[Any]) -> bool:
    return not any(isinstance(one, dict | list) for one in values)


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without what goes on with the clock."""
    return {
        name: value for name, value in row.items() if name not in {"load_rps", "load_tps", "requests_s", "tokens_s"}
    }


async def test_no_view_and_no_api_of_users_has_probes(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deployment that is called, and one that is only probed."""
    monkeypatch.setattr(prober, "LOOK_MAX_S", prober.LOOK_MIN_S)  # else the reload is noticed after 15 s
    config = probing("alpha", model={"race": {"mode": "single"}}, enabled=False)
    async with serve(config=config, alpha=None) as running:
        for _ in range(3):
            async with running.chat({"x-holeshot-tags": '{"v": "a"}'}, stream=True) as response:
                await response.read()
        before = await shown(running)
        limited = running.gateway.steering.extra_attempts_left("llama")
        running.config["probes"]["enabled"] = True
        running.gateway.reload(read(running.config, running.folder))
        await ended(running, 2)
        assert await running.rows("select * from attempts where role = 'probe'")
        after = await shown(running)
        assert running.gateway.steering.extra_attempts_left("llama") == limited
        async with running.get("/metrics") as response:
            metrics = await response.text()
            assert response.status == 200
        async with running.get("/api/history?window=1h&client=") as response:
            history = await response.json()
    assert sum(n or 0 for series in history["series"] for n in series["n"]) == 3
    for name, figures in before.items():
        assert after[name] == figures, name
    assert 'holeshot_calls_total{mode="single",model="llama",status="200"} 3.0' in metrics


async def test_the_leaderboard_learns_from_probes_in_memory_and_in_sql(serve: Serve) -> None:
    async with serve(config=probing("alpha", quiet_s=1), alpha=None) as running:

        async def none_runs() -> bool:
            return not await running.rows("select id from probes where ended_at is null")

        await ended(running, 3)
        running.config["probes"]["enabled"] = False  # none ends between the two looks
        running.gateway.reload(read(running.config, running.folder))
        await eventually(none_runs)
        [row] = running.gateway.steering.leaderboard("llama").deployments
        [stored] = await running.rows("select * from leaderboard")
    assert row.events >= 3
    assert row.probed_s_ago is not None
    assert (stored["events"], stored["n"]) == (row.n_first_token, row.n)
    assert stored["win_share"] in {None, 0}
    assert not row.win_share


async def test_probes_are_counted_apart(serve: Serve) -> None:
    async with serve(config=probing("alpha"), alpha=None) as running:
        [probe, *_] = await ended(running)
        async with running.get("/metrics") as response:
            lines = (await response.text()).splitlines()
        [counted] = [line for line in lines if line.startswith("holeshot_probes_total{")]
        assert 'deployment="alpha/m",outcome="answered"' in counted
        [spent] = [line for line in lines if line.startswith("holeshot_probes_today_usd ")]
        assert float(spent.split()[1]) >= probe["cost_usd"] > 0
        assert not any(line.startswith("holeshot_calls_total{") for line in lines)


async def test_what_is_sent_is_short_and_salted(serve: Serve) -> None:
    async with serve(config=probing("alpha", max_tokens=7, prompt="Hi."), alpha=None) as running:
        await ended(running, 2)
        bodies = [each.body for each in running["alpha"].received]
    prompts = [body["messages"][0]["content"] for body in bodies]
    assert all(prompt.endswith(": Hi.") for prompt in prompts)
    assert len(set(prompts)) == len(prompts)
    assert {body["max_tokens"] for body in bodies} == {7}


async def test_the_probe_of_a_voice_waits_for_its_first_sentence_as_calls_do(serve: Serve) -> None:
    config = probing("alpha", model={"race": {"win_on": "sentence"}})
    async with serve(config=config, alpha=[Delta("Well"), ErrorEvent()]) as running:
        await ended(running)
        [attempt, *_] = await running.rows("select * from attempts")
    assert (attempt["win_on"], attempt["sentence_ms"], attempt["token_ms"]) == ("sentence", None, None)
    assert attempt["ttft_ms"] is not None


async def test_a_probe_wants_text_which_is_always_valid(serve: Serve) -> None:
    """A model that reasons may have no more to say in a probe's few tokens."""
    config = probing("alpha", model={"race": {"win_on": "valid"}})
    async with serve(config=config, alpha=[Reasoning("Let me see."), *answer()]) as running:
        [probe, *_] = await ended(running)
        [attempt, *_] = await running.rows("select * from attempts")
    assert (probe["outcome"], attempt["win_on"]) == ("answered", "any")
    assert attempt["token_ms"] == attempt["ttft_ms"] is not None


async def test_one_without_a_price_is_probed_only_at_an_assumed_one(serve: Serve) -> None:
    async with serve(config=probing("alpha", price=None), alpha=None) as running:
        prober = running.gateway.probes
        await until(lambda: "alpha/m" in prober.not_probed)
        assert prober.not_probed["alpha/m"] is NotProbed.NO_PRICE
        assert not running.requests
        running.config["probes"]["usd_if_unknown"] = 0.04
        running.gateway.reload(read(running.config, running.folder))
        [probe, *_] = await ended(running, 2)
    assert (probe["reserved_usd"], probe["cost_usd"]) == (0.04, None)


async def test_what_was_reserved_counts_after_a_crash(
    serve: Serve, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row without an end is of a process that was killed: 0.04 of 0.10 dollars, twice, leave room for none."""
    monkeypatch.setattr(prober, "LOOK_MAX_S", prober.LOOK_MIN_S)  # else the reload is noticed after 15 s
    config = probing("alpha", price=None, usd_if_unknown=0.04)
    config["probes"]["enabled"] = False  # until the rows are there
    async with serve(config=config, alpha=[Hang()]) as running:
        with closing(sqlite3.connect(folder / "holeshot.db", timeout=60.0)) as connection, connection:
            columns = "id, started_at, model, deployment, replica, reserved_usd"
            for number in range(2):
                now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
                connection.execute(
                    f"insert into probes ({columns}) values (?, ?, ?, ?, ?, ?)",
                    (f"killed-{number}", now, "llama", "other/m", "killed", 0.04),
                )
        running.config["probes"]["enabled"] = True
        running.gateway.reload(read(running.config, running.folder))
        probes = running.gateway.probes
        await until(lambda: "alpha/m" in probes.not_probed)
        assert probes.not_probed["alpha/m"] is NotProbed.MONEY
        assert not running.requests


async def test_viewers_see_no_race_of_a_probe(serve: Serve) -> None:
    async with serve(config=probing("alpha"), alpha=None) as running, watching(running.http, running.url) as watcher:
        await ended(running, 2)
        async with running.chat() as response:
            await response.read()
        await watcher.seen("done")
        assert len({event["id"] for event in watcher.of("began", "done")}) == 1


async def test_a_probe_that_runs_while_a_limit_is_set_gives_its_seat_back(serve: Serve) -> None:
    go_on = asyncio.Event()
    async with serve(config=probing("alpha"), alpha=[Gate(go_on), *answer("one")]) as running:
        await running["alpha"].reach(requests=1)
        running.config["models"]["llama"]["deployments"][0]["max_in_flight"] = 1
        running.gateway.reload(read(running.config, running.folder))
        line = running.gateway.context.services.seats.lines["alpha/m"]
        assert line.taken == 1
        running.config["probes"]["enabled"] = False
        running.gateway.reload(read(running.config, running.folder))
        go_on.set()
        await ended(running)
        assert running.gateway.context.services.seats.lines["alpha/m"].taken == 0


async def test_what_runs_something_at_its_provider_by_itself_is_not_probed(serve: Serve) -> None:
    config = probing("beta")
    searching = {"deployment": "alpha/m", "price_per_mtok": PRICE, "extra_body": {"enable_search": True}}
    config["models"]["llama"]["deployments"] += [searching, {"deployment": "gamma/m:online", "price_per_mtok": PRICE}]
    async with serve(config=config, alpha=answer("ok"), beta=answer("ok"), gamma=answer("ok")) as running:
        await ended(running, 2)
        probed = await running.rows("select distinct deployment from probes")
        assert [row["deployment"] for row in probed] == ["beta/m"]
        assert running.gateway.probes.not_probed["alpha/m"] == "acts"
        assert running.gateway.probes.not_probed["gamma/m:online"] == "acts"
