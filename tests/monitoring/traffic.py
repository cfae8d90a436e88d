"""What is asked of the gateway while Prometheus looks: answers, failures, refusals and waits."""

import asyncio
from collections import Counter
from typing import Any

import aiohttp

BURST = 60
PACE_S = 0.25


async def traffic(url: str, keys: dict[str, str], seconds: float) -> Counter[int]:
    """Call for so long; return how many requests ended with each status."""
    statuses: Counter[int] = Counter()
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(url, timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        running: set[asyncio.Task[None]] = set()

        def ask(client: str, model: str, *, stream: bool = True, max_tokens: int = 40) -> None:
            body = {
                "model": model,
                "stream": stream,
                "max_tokens": max_tokens,
                "messages": [{"role": "user", "content": "Why is the sky blue?"}],
            }
            running.add(asyncio.ensure_future(_ask(session, keys.get(client, "wrong"), body, statuses)))

        loop = asyncio.get_running_loop()
        end_s, number = loop.time() + seconds, 0
        while loop.time() < end_s:
            ask("team-a", "demo-chat", stream=number % 3 > 0)
            ask("team-b", "troubled")
            ask("team-c", "broken")
            ask("team-c", "scarce")
            if number % 4 == 0:
                ask("nobody", "demo-chat")
                ask("team-a", "no-such-model")
                for _ in range(3):
                    ask("team-a", "narrow")
            if number in (30, 60):
                for _ in range(BURST):
                    ask("team-a", "demo-chat")
            number += 1
            await asyncio.sleep(PACE_S)
        await asyncio.gather(*running)
    return statuses


async def _ask(session: aiohttp.ClientSession, key: str, body: dict[str, Any], statuses: Counter[int]) -> None:
    headers = {"authorization": f"Bearer {key}"}
    try:
        async with session.post("/v1/chat/completions", json=body, headers=headers) as response:
            await response.read()
            statuses[response.status] += 1
    except aiohttp.ClientError:
        statuses[0] += 1
