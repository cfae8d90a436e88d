"""``kill -9`` under load: every call whose client saw its end is one row, every cut one shows as interrupted."""

import asyncio
import signal
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import aiohttp

from providers.simulator import Delta, Gate, RoleOnly, ScriptedProvider, Step, answer
from tests.app.gateway.process import GatewayProcess, started
from tests.app.gateway.running_gateway import chat_body, configuration

STREAMS = 50


async def stream(
    http: aiohttp.ClientSession, gateway: GatewayProcess, seen: dict[str, bool], begun: asyncio.Semaphore
) -> None:
    """Read a stream to whatever end it has; note by call id whether [DONE] came."""
    async with http.post(f"{gateway.url}/v1/chat/completions", json=chat_body(stream=True)) as response:
        call_id = response.headers["x-holeshot-call-id"]
        seen[call_id] = False
        begun.release()
        try:
            while line := await response.content.readline():
                if line == b"data: [DONE]\n":
                    seen[call_id] = True
        except aiohttp.ClientError:
            return


async def test_no_call_is_lost_or_doubled_when_the_process_is_killed(folder: Path) -> None:
    never = asyncio.Event()
    endless: list[Step] = [RoleOnly(), Delta("a"), Gate(never)]
    async with ScriptedProvider() as alpha, ScriptedProvider() as beta, aiohttp.ClientSession() as http:
        config = configuration(folder, {"alpha": alpha.base_url, "beta": beta.base_url})
        seen: dict[str, bool] = {}
        begun = asyncio.Semaphore(0)
        async with started(config, folder) as gateway:
            await asyncio.gather(*(stream(http, gateway, seen, begun) for _ in range(STREAMS)))
            alpha.script = beta.script = endless
            cut = [asyncio.create_task(stream(http, gateway, seen, begun)) for _ in range(STREAMS)]
            for _ in range(2 * STREAMS):
                await begun.acquire()
            alpha.script = beta.script = answer("at the last moment")
            late = [asyncio.create_task(stream(http, gateway, seen, begun)) for _ in range(STREAMS)]
            await asyncio.wait(late, return_when=asyncio.FIRST_COMPLETED)
            gateway.send(signal.SIGKILL)
            await gateway.ended()
            await asyncio.gather(*cut, *late, return_exceptions=True)

        async with started(config, folder) as again:
            adopted = await again.event("ledger.spool_adopted")
            assert adopted["interrupted"] >= STREAMS
            again.send(signal.SIGTERM)
            assert await again.ended() == 0

    with closing(sqlite3.connect(folder / "holeshot.db")) as connection:
        calls = connection.execute("select id, status_code, error_kind from calls").fetchall()
        attempts = connection.execute("select call_id, outcome from attempts").fetchall()
    assert len(seen) >= 2 * STREAMS + 1
    assert max(Counter(call_id for call_id, _, _ in calls).values()) == 1
    ended = {call_id for call_id, status, _ in calls if status == 200}
    interrupted = {call_id for call_id, _, kind in calls if kind == "interrupted"}
    assert {call_id for call_id, done in seen.items() if done} <= ended
    # A call is recorded before its last byte goes out: one whose client saw no end may be recorded as ended.
    assert {call_id for call_id, done in seen.items() if not done} <= ended | interrupted
    assert len(interrupted) >= STREAMS
    assert {outcome for call_id, outcome in attempts if call_id in interrupted} == {"interrupted"}
    assert Counter(outcome for call_id, outcome in attempts if call_id in ended)["won"] == len(ended)
