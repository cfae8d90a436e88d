"""A rival that is kept answers over real sockets, when the winner of a whole answer breaks."""

import asyncio
import json

from providers.simulator import Delta, Drop, Finish, Gate, Step
from tests.app.gateway.running_gateway import MODEL, Serve
from tests.app.gateway.watcher import watching


def kept(*, keep_rival: bool) -> dict[str, object]:
    race = {"mode": "race", "width": 2, "keep_rival": keep_rival}
    return {"models": {MODEL: {"race": race}}}


async def test_the_rival_answers_and_nobody_is_asked_again(serve: Serve) -> None:
    asked, breaks = asyncio.Event(), asyncio.Event()
    first: list[Step] = [Gate(asked), Delta("bro"), Gate(breaks), Drop()]
    second: list[Step] = [Gate(breaks), Delta("whole"), Finish()]
    async with serve(alpha=first, beta=second, config=kept(keep_rival=True)) as running:
        running.prefer("alpha", "beta")
        async with watching(running.http, running.url, None) as watcher:
            asking = asyncio.ensure_future(running.chat().__aenter__())
            await running["beta"].requested.wait()
            asked.set()
            await watcher.seen("first")
        breaks.set()
        response = await asking
        body = json.loads(await response.read())
        assert body["choices"][0]["message"]["content"] == "whole"
        assert running.requests == 2
        rows = await running.rows("select provider, outcome, is_kept from attempts order by provider")
        assert [tuple(row.values()) for row in rows] == [("alpha", "failed", 0), ("beta", "won", 1)]
