"""``kill -9`` at any moment under load, again and again: no limit is exceeded, no stored name lost, no row twice.

``make test`` kills a few times; ``KILLS=200 HANGS_S=0`` by hand. Each life of the gateway has a load of clients, teams
and end users near their dollars of a day, chains of stored responses, and responses in the background.
"""

import asyncio
import hashlib
import json
import os
import re
import signal
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from providers.simulator import ProviderTally, json_response, serve
from tests.app.gateway.apis.test_dialects import event
from tests.app.gateway.process import GatewayProcess, started
from tests.app.gateway.running_gateway import configuration
from tests.patience import eventually
from tests.services.ledger.asking import asked

KILLS = int(os.environ.get("KILLS", "3"))
SEED = int(os.environ.get("SEED", "1"))
USD = 0.01  # what an answer costs
LIMIT_USD = 0.2
GROUP = 4  # lives that share their clients: the limits of the first are reached in the last
AT_ONCE = 3  # calls of each, that run beside each other
LONGEST = 250  # steps of a life: a call has up to five
USAGE = {"input_tokens": 0, "output_tokens": 1_000, "total_tokens": 1_000}
LEVELS = ("client", "team", "user")
MODEL = "m"


class Moment:
    """When the gateway is killed: after so many steps of clients and the provider, whichever come."""

    def __init__(self) -> None:
        self.left = 0
        self.has_come = asyncio.Event()

    def begin(self, steps: int) -> None:
        self.left = steps
        self.has_come.clear()

    def step(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.has_come.set()


class Provider:
    """It stores responses, runs them in the background, and knows who was answered how often."""

    def __init__(self, random: Random, moment: Moment) -> None:
        self.random, self.moment = random, moment
        self.stored: dict[str, str] = {}  # who asked, by the response's id
        self.unknown: list[str] = []  # names that it was asked for and has not given
        self.looked: Counter[str] = Counter()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        routes = [web.post("/v1/responses", self._make), web.get("/v1/responses/{id}", self._look)]
        async with serve(routes, ProviderTally()) as base_url:
            yield base_url

    def _response(self, response_id: str, **fields: Any) -> dict[str, Any]:
        content = [{"type": "output_text", "text": "Hi", "annotations": []}]
        message = {"type": "message", "id": f"msg_{response_id}", "role": "assistant", "status": "completed"}
        told = {"id": response_id, "object": "response", "created_at": 1, "status": "completed", "model": MODEL}
        return {**told, "output": [{**message, "content": content}], "usage": USAGE, **fields}

    async def _make(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.moment.step()
        before = body.get("previous_response_id")
        if before is not None and before not in self.stored:
            self.unknown.append(before)
            return json_response({"error": {"message": "no such response", "type": "not_found"}}, status=404)
        response_id = f"resp_{self.random.getrandbits(160):040x}"
        self.stored[response_id] = json.dumps(body["input"])
        if body.get("background"):
            return json_response(self._response(response_id, status="queued", output=[], usage=None, background=True))
        if not body.get("stream"):
            return json_response(self._response(response_id))
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        done = self._response(response_id)
        await response.write(event("response.created", response={**done, "status": "in_progress", "output": []}))
        text = {"output_index": 0, "content_index": 0, "item_id": f"msg_{response_id}"}
        await response.write(event("response.output_text.delta", delta="Hi", **text))
        self.moment.step()
        await response.write(event("response.completed", response=done))
        return response

    async def _look(self, request: web.Request) -> web.Response:
        self.looked[request.match_info["id"]] += 1
        return json_response(self._response(request.match_info["id"], background=True))


class Load:
    """What clients ask, and what they have seen."""

    def __init__(self, random: Random, moment: Moment) -> None:
        self.random, self.moment = random, moment
        self.answered: Counter[str] = Counter()  # by the account that is limited
        self.cut: Counter[str] = Counter()  # whose client saw no end
        self.refused: Counter[str] = Counter()
        self.odd: list[str] = []
        self.calls: dict[str, bool] = {}  # by the call's id, whether its client saw its end
        self.chains: defaultdict[str, list[str]] = defaultdict(list)  # by key, what may be continued
        self.background: dict[str, str] = {}  # whose, by the response's id
        self.resumed = 0

    async def ask(self, http: aiohttp.ClientSession, gateway: GatewayProcess, level: str, group: int) -> None:
        """Ask once, as one of the clients of a group that a level's limit counts."""
        account = f"{level}{group}"
        key = f"{account}{self.random.choice('ab')}" if level == "team" else account
        body: dict[str, Any] = {"model": MODEL, "input": account, "max_output_tokens": 1_000, "store": True}
        kind = self.random.choice(("whole", "streamed", "background"))
        body |= {"streamed": {"stream": True}, "background": {"background": True}}.get(kind, {})
        if level == "user":
            body["safety_identifier"] = account
        chain = self.chains[key]
        if chain and self.random.random() < 0.5:
            body["previous_response_id"] = self.random.choice(chain[-5:])
        call_id = None
        self.moment.step()
        try:
            async with http.post(
                f"{gateway.url}/v1/responses", json=body, headers={"authorization": f"Bearer {key}"}
            ) as response:
                call_id = response.headers.get("x-holeshot-call-id")
                if response.status == 200 and call_id is not None:
                    self.calls[call_id] = False
                self.moment.step()
                told = await response.read()
        except (aiohttp.ClientError, ConnectionError):
            self.cut[account] += 1
            return
        if response.status == 429:
            self.refused[account] += 1
            return
        found = re.search(rb'"id":\s*"(resp_[0-9a-f]+)"', told)
        if response.status != 200 or found is None or call_id is None:
            self.odd.append(f"{response.status} {told.decode()[:300]}")
            return
        self.calls[call_id] = True
        self.answered[account] += 1
        name = found[1].decode()
        if kind == "background":
            self.background[name] = account
        else:
            chain.append(name)

    async def run(self, http: aiohttp.ClientSession, gateway: GatewayProcess, group: int) -> None:
        """Ask until the moment has come."""

        async def one(level: str) -> None:
            while not self.moment.has_come.is_set():
                await self.ask(http, gateway, level, group)
                self.moment.step()

        await asyncio.gather(*(one(level) for level in LEVELS for _ in range(AT_ONCE)))

    async def resume(self, http: aiohttp.ClientSession, gateway: GatewayProcess) -> None:
        """Name what was stored before the kill: it is known. A limit that is reached refuses, and that is no 404."""
        for key, chain in self.chains.items():
            for name in chain[-2:]:
                headers = {"authorization": f"Bearer {key}"}
                async with http.get(f"{gateway.url}/v1/responses/{name}", headers=headers) as response:
                    told = await response.text()
                    if response.status not in {200, 429}:
                        self.odd.append(f"lost: {response.status} {told[:300]}")
                    self.resumed += 1


def settings_of(groups: int) -> dict[str, Any]:
    limit = {"usd_per_day": LIMIT_USD}
    clients: dict[str, Any] = {}
    for group in range(groups):
        clients[f"client{group}"] = limit
        clients[f"user{group}"] = {}
        for each in "ab":
            clients[f"team{group}{each}"] = {"team": f"team{group}"}
    return {
        "clients": {
            name: {"key_sha256": hashlib.sha256(name.encode()).hexdigest(), **limits}
            for name, limits in clients.items()
        },
        "teams": {f"team{group}": limit for group in range(groups)},
        "end_users": limit,
        "page": {"signing_key": "k" * 64},
    }


async def test_a_gateway_with_sqlite_alone_keeps_limits_names_and_rows_however_it_is_killed(tmp_path: Path) -> None:
    await killed(tmp_path, "sqlite")


async def test_a_gateway_with_postgres_and_without_redis_keeps_them_too(tmp_path: Path, postgres_url: str) -> None:
    await killed(tmp_path, "postgres", database_url=postgres_url)


@pytest.mark.usefixtures("redis")
async def test_a_gateway_with_redis_keeps_them_too(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    await killed(tmp_path, "postgres and redis", database_url=postgres_url, redis_url=redis_url)


async def killed(tmp_path: Path, stores: str, **more: str) -> None:
    """Kill a gateway again and again, and compare what it knows with what clients and the provider have seen."""
    random, moment = Random(f"{SEED} {stores}"), Moment()
    provider, load = Provider(random, moment), Load(random, moment)
    groups = (KILLS + GROUP - 1) // GROUP
    async with provider.serving() as base_url, aiohttp.ClientSession() as http:
        config = configuration(tmp_path, {}, **settings_of(groups), **more)
        config["providers"] = {"own": {"base_url": base_url, "api_key": "upstream-secret", "apis": ["responses"]}}
        price = {"price_per_mtok": {"input": 0.0, "output": USD * 1_000}}
        config["models"] = {MODEL: {"deployments": [{"deployment": "own/m", **price}]}}
        for life in range(KILLS):
            async with started(config, tmp_path) as gateway:
                await load.resume(http, gateway)
                moment.begin(random.randint(1, LONGEST))
                asking = asyncio.create_task(load.run(http, gateway, life // GROUP))
                await moment.has_come.wait()
                gateway.send(signal.SIGKILL)
                await gateway.ended()
                await asking
        url = config["database_url"].replace("sqlite:", "sqlite+aiosqlite:")
        async with started(config, tmp_path) as gateway:
            await load.resume(http, gateway)

            async def all_ended() -> bool:
                if "redis_url" in more:
                    return True
                ends = await asked(url, "select distinct continues from attempts where continues is not null")
                return load.background.keys() <= provider.looked.keys() and len(ends) >= len(load.background)

            await eventually(all_ended)
            gateway.send(signal.SIGTERM)
            assert await gateway.ended() == 0
    rows = await asked(url, "select id, status_code, error_kind, api, cost_usd from calls")
    attempts = await asked(url, "select id, call_id, continues from attempts")
    print(f"{stores}: {KILLS} kills, {len(load.calls)} calls, {sum(load.refused.values())} refused")  # noqa: T201 - -s
    assert load.odd == []
    assert provider.unknown == []
    counted = Counter(f"{row['id']}" for row in rows)
    assert load.calls.keys() <= counted.keys()
    assert {*counted.values()} <= {1}
    ends = Counter(f"{row['continues']}" for row in attempts if row["continues"] is not None)
    assert {*ends.values()} <= {1}
    if "redis_url" not in more:
        assert len(ends) >= len(load.background)
    for account in load.answered:
        # What runs when a limit is reached ends; of what a kill has cut the cost is not known.
        most_usd = LIMIT_USD + USD * (AT_ONCE + load.cut[account])
        assert USD * load.answered[account] <= most_usd + 1e-9, account
    assert load.resumed
