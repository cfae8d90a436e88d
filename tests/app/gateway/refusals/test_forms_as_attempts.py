"""A request that is refused for its form: each request is a row, and no figure is of the refusal."""

from typing import Any

import pytest

from providers.simulator import Status, answer
from tests.app.gateway.keys.test_keys_as_attempts import LIMITED, VIEWS
from tests.app.gateway.keys.test_weak_keys import RING
from tests.app.gateway.refusals.test_refused_fields import refusing
from tests.app.gateway.running_gateway import MODEL, Serve


def config(**settings: Any) -> dict[str, Any]:
    return {"models": {MODEL: {"race": {"mode": "single"}}}, **settings}


@pytest.mark.usefixtures("views")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_rows_say_what_the_provider_counts_and_no_view_board_or_metric_a_fault(
    serve: Serve, *, stream: bool
) -> None:
    async with serve(alpha=None, config=config()) as running:
        running["alpha"].answers = refusing("verbosity")
        async with running.chat(stream=stream, verbosity="low") as response:
            assert (response.status, response.headers["x-holeshot-launched"]) == (200, "2")
            assert "x-holeshot-narrowed" not in response.headers
            await response.read()
        first, second = await running.rows("select * from attempts order by number")
        assert len(running["alpha"].received) == first["sends"] + second["sends"] == 2
        assert (first["role"], first["error_kind"], first["status_code"]) == ("primary", "form_refused", 400)
        assert (first["ttft_ms"], first["cost_high_usd"] or 0) == (None, 0)
        assert (second["role"], second["outcome"], second["replaces"]) == ("form", "won", first["id"])
        assert second["counts_as"] == "primary"
        [call] = await running.rows("select * from calls")
        assert (call["launched"], call["extras"], call["narrowed"]) == (2, 0, None)
        for view in VIEWS:
            [of_view] = await running.rows(f"select error_rate, n_rate_limited from {view}")
            assert (of_view["error_rate"], of_view["n_rate_limited"]) == (0.0, 0), view
        samples = await running.rows("select is_late, is_error, is_counted, is_won from samples")
        assert {tuple(each.values()) for each in samples} == {(0, 0, 0, 0), (0, 0, 1, 1)}
        [race] = await running.rows("select n_launched, n_raced, n_overtaken, n_rescued from race_value")
        assert tuple(race.values()) == (2, 0, 0, 0)
        [row] = running.gateway.steering.leaderboard(MODEL).deployments
        assert (row.state, row.n, row.error_rate) == ("ok", 1, 0.0)
        async with running.get("/metrics") as response:
            assert 'kind="form_refused"' in await response.text()
        async with running.chat(stream=stream, verbosity="low") as response:
            assert (response.status, response.headers["x-holeshot-launched"]) == (200, "1")


async def test_what_passes_unread_goes_the_same_way_and_keys_are_tried_between(serve: Serve) -> None:
    vectors = {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [1.0]}], "model": "m"}
    said = Status(200, {**vectors, "usage": {"prompt_tokens": 1, "total_tokens": 1}})

    def answers(body: Any) -> Any:
        if "user" in body:
            return refusing("user")(body)
        return [LIMITED if len(running["alpha"].received) == 2 else said]

    async with serve(alpha=answer("Hello"), config=config(providers={"alpha": RING})) as running:
        running["alpha"].answers = answers
        body = {"model": MODEL, "input": "one", "user": "somebody"}
        async with running.post(body, path="/v1/embeddings") as response:
            assert (response.status, response.headers["x-holeshot-launched"]) == (200, "3")
        rows = await running.rows("select role, error_kind, counts_as from attempts order by number")
        assert [tuple(each.values()) for each in rows] == [
            ("primary", "form_refused", None),
            ("form", "key_refused", "primary"),
            ("key", None, "primary"),
        ]
        keys = [each.headers["authorization"] for each in running["alpha"].received]
        assert (keys[0] == keys[1], len({*keys})) == (True, 2)
