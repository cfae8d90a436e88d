"""Audited losers over real sockets: they run on to their first token, and the ledger tells what racing saved."""

import asyncio

import pytest

from providers.simulator import Delta, Gate, Hang, answer
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve
from tests.patience import eventually

ALWAYS = {"models": {MODEL: {"race": {"audit_share": 1.0}}}}


async def audited(running: RunningGateway) -> dict[str, object]:
    """Return the primary's row, once the audit has ended."""
    rows = await eventually(lambda: running.rows("select * from attempts where provider = 'slow' and number = 1"))
    return rows[0]


@pytest.mark.usefixtures("views")
async def test_an_audited_primary_is_seen_to_its_first_token_and_then_cut(serve: Serve) -> None:
    go_on = asyncio.Event()
    slow = [Gate(go_on), Delta("late"), Hang()]
    async with serve(slow=slow, fast=None, config=ALWAYS) as running:
        running.prefer("slow", "fast")
        running["fast"].script = [Gate(running["slow"].requested), *answer("from fast")]
        async with running.chat(stream=True) as response:
            assert b"from fast" in await response.read()
        call = await running.call()
        assert (call["alone_ms"], call["alone_age_ms"] is None) == (None, False)
        assert running["slow"].counts.disconnects == 0
        go_on.set()
        primary = await audited(running)
        await running["slow"].reach(disconnects=1)
        assert (primary["outcome"], primary["audited"], primary["is_overtaken"]) == ("superseded", 1, 1)
        assert primary["token_ms"] > primary["overtaken_at_ms"]  # type: ignore[operator] # numbers
        (value,) = await running.rows("select * from race_value")
        assert (value["n_compared"], value["n_audits"], value["basis"]) == (1, 1, "curve")
        predicted_ms = call["alone_predicted_ms"] - call["ttft_ms"]
        assert value["saved_ms"] == pytest.approx(predicted_ms)


@pytest.mark.usefixtures("views")
async def test_a_primary_that_wins_needs_no_estimate(serve: Serve) -> None:
    async with serve(fast=None, slow=[Hang()], config=ALWAYS) as running:
        running.prefer("fast", "slow")
        running["fast"].script = [Gate(running["slow"].requested), *answer("from fast")]
        async with running.chat(stream=True) as response:
            await response.read()
        call = await running.call()
        assert (call["alone_ms"], call["alone_age_ms"], call["alone_predicted_ms"]) == (call["ttft_ms"], None, None)
        (value,) = await running.rows("select * from race_value")
        assert (value["basis"], value["saved_ms"]) == ("seen", 0.0)
        assert value["alone_p50_ms"] is None  # of one call there is no quantile: it is told from thirty on
