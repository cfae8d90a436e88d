"""A provider's keys that are limited or refused: each request is a row, and no figure is of a key's refusal."""

from typing import Any

import pytest

from gateway.core.attempts import Role
from providers.simulator import Delta, ScriptedProvider, Status, Step, answer
from tests.app.gateway.keys.test_weak_keys import RING
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve

LIMITED = Status(
    429, {"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}, {"retry-after": "30"}
)
DEAD = Status(401, {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}})
REFUSALS = pytest.mark.parametrize("refusal", [LIMITED, DEAD], ids=["limited", "dead"])
VIEWS = ("throughput", "throughput_1h", "throughput_5m", "leaderboard")


def config(mode: str = "single", **settings: Any) -> dict[str, Any]:
    race = {"mode": mode} if mode == "single" else {"mode": mode, "width": 2, "budget": 1.0}
    return {"providers": {"alpha": RING}, "models": {MODEL: {"race": race}}, **settings}


def refuse_first(provider: ScriptedProvider, refusal: Step) -> None:
    provider.once([refusal])


@REFUSALS
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_what_the_provider_counts_is_what_the_rows_say(serve: Serve, refusal: Status, *, stream: bool) -> None:
    async with serve(alpha=answer("Hello"), config=config()) as running:
        refuse_first(running["alpha"], refusal)
        async with running.chat(stream=stream) as response:
            assert (response.status, response.headers["x-holeshot-launched"]) == (200, "2")
            assert "x-holeshot-narrowed" not in response.headers
            await response.read()
        first, second = await running.rows("select * from attempts order by number")
        assert len(running["alpha"].received) == first["sends"] + second["sends"] == 2
        assert [(each["role"], each["outcome"], each["error_kind"]) for each in (first, second)] == [
            ("primary", "failed", "key_refused"),
            ("key", "won", None),
        ]
        assert (first["status_code"], first["ttft_ms"], first["cost_high_usd"] or 0) == (refusal.status, None, 0)
        assert (second["replaces"], second["counts_as"]) == (first["id"], "primary")
        assert first["key_name"] != second["key_name"]
        [call] = await running.rows("select * from calls")
        assert (call["launched"], call["extras"], call["narrowed"]) == (2, 0, None)
        assert call["winner_attempt_id"] == second["id"]


@pytest.mark.usefixtures("views")
@REFUSALS
async def test_views_leaderboard_and_metrics_count_one_answer_of_a_deployment_without_a_fault(
    serve: Serve, refusal: Status
) -> None:
    async with serve(alpha=answer("Hello"), config=config()) as running:
        refuse_first(running["alpha"], refusal)
        async with running.chat(stream=True) as response:
            await response.read()
        for view in VIEWS:
            [of_view] = await running.rows(f"select error_rate, n_rate_limited from {view}")
            assert (of_view["error_rate"], of_view["n_rate_limited"]) == (0.0, 0), view
        samples = await running.rows(
            "select is_late, is_overtaken, is_error, is_counted, is_won, token_ms from samples"
        )
        told = {(each["is_late"], each["is_error"], each["is_counted"], each["is_won"]) for each in samples}
        assert told == {(0, 0, 0, 0), (0, 0, 1, 1)}
        [race] = await running.rows(
            "select n_launched, n_raced, n_overtaken, n_rescued, extra_per_call from race_value"
        )
        assert tuple(race.values()) == (2, 0, 0, 0, 0)
        [row] = running.gateway.steering.leaderboard(MODEL).deployments
        assert (row.state, row.n, row.error_rate, row.rate_limited) == ("ok", 1, 0.0, 0)
        async with running.get("/metrics") as response:
            page = await response.text()
        counted = [line.rpartition(" ") for line in page.splitlines() if line.startswith("holeshot_attempt")]
        once = [name for name, _, value in counted if value.startswith("1")]
        assert [name for name in once if 'role="key"' in name and 'outcome="won"' in name]
        assert [name for name in once if 'kind="key_refused"' in name]


async def test_the_key_rests_as_its_refusal_says(serve: Serve) -> None:
    async with serve(alpha=answer("Hello"), config=config()) as running:
        refuse_first(running["alpha"], LIMITED)
        for _ in range(4):
            async with running.chat() as response:
                assert response.status == 200
        asked = [each.headers["authorization"] for each in running["alpha"].received]
        assert asked.count(asked[0]) == 1
        roles = [each["role"] for each in await running.rows("select role from attempts order by call_id, number")]
        assert sorted(roles) == ["key", *["primary"] * 4]


async def test_beside_a_rival_the_race_is_as_wide_as_before(serve: Serve) -> None:
    settings = {
        **config("race"),
        "models": {MODEL: {"deployments": ["alpha/m", "beta/m"], "race": {"mode": "race", "width": 2, "budget": 1.0}}},
    }
    async with serve(alpha=answer("Hello"), beta=answer("Hello"), config=settings) as running:
        running.prefer("alpha", "beta")
        refuse_first(running["alpha"], LIMITED)
        async with running.chat() as response:
            assert response.status == 200
        [call] = await running.rows("select launched, extras, width_asked, narrowed from calls")
        assert (call["extras"], call["width_asked"], call["narrowed"]) == (1, 2, None)
        rows = await running.rows("select role, counts_as, is_extra from attempts order by number")
        assert [each["is_extra"] for each in rows] == [0, 1, 0][: len(rows)]


@pytest.mark.parametrize(("most", "status"), [(20, 200), (5, 429), (None, 200)])
async def test_a_ring_of_twenty_is_tried_to_its_end_unless_calls_may_make_fewer_requests(
    serve: Serve, most: int | None, status: int
) -> None:
    ring = {"api_key": None, "api_keys": [f"key-{number:02}-0123456789abcdef" for number in range(20)]}
    settings = {**config(), "providers": {"alpha": ring}} | ({"max_requests": most} if most else {})
    async with serve(alpha=None, config=settings) as running:
        running["alpha"].answers = lambda _: answer("Hello") if len(running["alpha"].received) == 20 else [LIMITED]
        async with running.chat() as response:
            assert response.status == status
        assert len(running["alpha"].received) == (most or 20)
        rows = await running.rows("select error_message, sends from attempts order by number")
        assert sum(each["sends"] for each in rows) == (most or 20)
        assert status == 200 or rows[-1]["error_message"].endswith("its max_requests)")


@REFUSALS
async def test_a_request_that_passes_unread_is_asked_again_with_the_next_key(serve: Serve, refusal: Status) -> None:
    vectors = {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [1.0]}], "model": "m"}
    async with serve(alpha=None, config=config()) as running:
        running["alpha"].script = [Status(200, {**vectors, "usage": {"prompt_tokens": 1, "total_tokens": 1}})]
        refuse_first(running["alpha"], refusal)
        async with running.post({"model": MODEL, "input": "one"}, path="/v1/embeddings") as response:
            assert (response.status, response.headers["x-holeshot-launched"]) == (200, "2")
        rows = await running.rows("select role, error_kind from attempts order by number")
        assert [tuple(each.values()) for each in rows] == [("primary", "key_refused"), ("key", None)]


async def test_the_call_in_the_api_of_the_page_names_what_it_replaces(serve: Serve) -> None:
    async with serve(alpha=answer("Hello"), config=config()) as running:
        refuse_first(running["alpha"], LIMITED)
        async with running.chat() as response:
            call = response.headers["x-holeshot-call-id"]
        async with running.get(f"/api/calls/{call}") as response:
            first, second = (await response.json())["attempts"]
        assert (second["replaces"], second["role"], first["replaces"]) == (first["id"], str(Role.KEY), None)


async def test_a_stream_goes_on_after_the_first_key_was_refused(serve: Serve) -> None:
    async with serve(alpha=[Delta("a"), Delta("b"), *answer("c")], config=config()) as running:
        refuse_first(running["alpha"], DEAD)
        assert await said(running)


async def said(running: RunningGateway) -> bool:
    async with running.chat(stream=True) as response:
        return b"[DONE]" in await response.read()
