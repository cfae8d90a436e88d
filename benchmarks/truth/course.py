"""The calls of one run: races, single calls at each provider, trouble of many kinds, and clients that give up."""

import asyncio
import hashlib
import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec

from benchmarks.truth.fleet import Fleet, Persona

LEFT = 499  # the status of a call whose client gave up
AT_ONCE = 12  # calls: more would measure this machine
PATIENCE_S = 0.513  # of those who give up
WAIT_S = 30.0
LEAVE = 18  # of the calls of the slow
HEDGE_S = 0.060
MAX_TOKENS, TEMPERATURE = 200, 0.5
DEADLINE_MS, WITH_DEADLINE = 500.0, 10  # one call of so many has it
FILLER = "word " * 26  # so that the prompt is as long as the fleet says
REPLICA, REGION = "truth-1", "here"
CLIENTS = {"ada": "hs-ada-0123456789", "bob": "hs-bob-0123456789"}
VIEWER = {"eye": "hs-eye-0123456789"}
# So far away that nothing is refused: what is counted is compared.
CLIENT_LIMITS: Mapping[str, Mapping[str, Any]] = {
    "bob": {"rpm": 10**6, "tpm": 10**9, "max_parallel": 1000, "usd_per_day": 1e3, "usd_per_month": 1e4},
    "eye": {"role": "viewer"},
}
MODEL_USD = 1e3  # a day, of the model ``race``
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
RACING = ("steady", "swift", "chunky", "caching")
TIERS = {"": 1.0, "priority": 2.0, "flex": 0.5}
ASKED = (None, "auto", "priority", "flex", "default")  # by a call's number
TIERED, SPEAKING = ("prompt", "crowded", "mute", "project"), ("voice", "choir")
PERSONAS = (
    Persona("steady", 0.060),
    Persona("swift", 0.050, per_chunk=2, bills_on=True),
    Persona("chunky", 0.055, per_chunk=8, keys=("blue", "green")),
    Persona("caching", 0.065, cached_usd=1e-7),
    Persona("large", 0.050, per_chunk=32),
    Persona("liar", 0.050, overstates=2.0),
    Persona("slow", 0.500, sigma=0.4, bills_on=True),
    Persona("thinker", 0.060, thinks=12),
    Persona("ponder", 0.060, thinks=24),
    Persona("speaker", 0.060, cached_usd=1e-7, write_usd=1.25e-6),
    Persona("faulty", 0.040, plays=frozenset({"fails"})),
    Persona("choked", 0.040, plays=frozenset({"limited"})),
    Persona("broken", 0.040, plays=frozenset({"fails"})),
    Persona("careless", 0.040, plays=frozenset({"reset"})),
    Persona("narrow", 0.050),
    Persona("rip", 0.050, plays=frozenset({"torn"})),
    Persona("heir", 0.050, plays=frozenset({"fails"})),
    Persona("sloppy", 0.030, sigma=0.2, plays=frozenset({"strict", "broken"})),
    Persona("early", 0.030, sigma=0.1, tps=40.0),
    Persona("writer", 0.120, sigma=0.1),
    Persona("boaster", 0.050, overstates=1e6),
    Persona("prompt", 0.060, tiers=TIERS),
    Persona("crowded", 0.060, tiers=TIERS, has_room=False, bills_on=True),
    Persona("mute", 0.060, tiers=TIERS, has_room=False, says_tier=False),
    Persona("project", 0.060, tiers=TIERS, project="priority"),
    Persona("seeker", 0.050, searches=2, search_usd=0.01),
    Persona("voice", 0.060, speaks_usd=3e-5),
    Persona("choir", 0.060, speaks_usd=3e-5, bills_on=True),
)
# Models of which each has a mode of its own, with figures of their own: modes.py, of ``torn`` figures.py, and of those
# that are billed by tier and unit units.py.
BILLED = ("tiered", "seeking", "speaking")
MODES = frozenset({"torn", "spoken", "strict", "held", "kept", "boasting", *BILLED})
PROFILE = "voice"  # of the model ``spoken``
POOL = ("steady", "swift", "chunky", "caching", "large", "liar")


class Scenario(msgspec.Struct, frozen=True):
    """Calls of one sort: which model is asked, for what, by whom and how often."""

    name: str
    calls: int
    model: str
    kind: str = "text"
    only: str | None = None  # the provider that is to answer
    path: str = "chat/completions"
    leave: int = 0  # so many of them give up
    streamed: bool = True


class Job(msgspec.Struct, frozen=True):
    """One call to make."""

    number: int
    scenario: Scenario
    client: str
    tags: Mapping[str, str]
    patience_s: float = WAIT_S

    @property
    def deadline_ms(self) -> float | None:
        """When the client wants its first token."""
        return None if self.number % WITH_DEADLINE else DEADLINE_MS


class Made(msgspec.Struct):
    """One call as its client saw it; instants are seconds on this machine's monotonic clock."""

    job: Job
    sent_at: float
    sent: datetime
    id: str | None = None  # as the gateway says
    status: int = LEFT
    byte_at: float | None = None
    first_at: float | None = None  # the first text
    ended_at: float = math.inf
    text: str = ""
    reasoning: str = ""
    usage: Mapping[str, Any] | None = None  # as the gateway said, where it was asked

    @property
    def provider(self) -> str | None:
        """Who answered, by the words of the answer; else the one that alone could."""
        words = self.text.replace('{"x": "', "").split()
        told = words[0].rstrip(".") if words else ""
        names = [persona.name for persona in PERSONAS if told.startswith(persona.name)]
        return names[0] if names else self.job.scenario.only


def scenarios(calls: int) -> Sequence[Scenario]:
    """Return what is played when ``calls`` are raced."""
    some, more = max(8, calls // 100), max(25, calls // 20)
    return (
        Scenario("race", calls, "race"),
        *(Scenario(f"alone {name}", more, "pool", only=name) for name in POOL),
        Scenario("whole", some, "pool", only="steady", streamed=False),
        *(Scenario(kind, some, "pool", kind, "steady") for kind in ("tool", "broken", "cut", "empty", "truncated")),
        Scenario("slow", 30, "slow", leave=LEAVE, only="slow"),
        Scenario("hedge", more, "hedged"),
        Scenario("think", more, "thoughtful"),
        Scenario("messages", some, "speaker", path="messages", only="speaker"),
        Scenario("fails", 8, "faulty", "fails"),
        Scenario("limited", 8, "choked", "limited"),
        Scenario("fallback", 8, "broken", "fails"),
        Scenario("reset", some, "careless", "reset", only="careless"),
        Scenario("narrow", some, "narrow", only="narrow"),
        Scenario("torn", more, "torn", "torn"),
        Scenario("orphan", 3, "torn", "orphan"),
        Scenario("spoken", some, "spoken", "spoken"),
        Scenario("strict", some, "strict", "strict"),
        Scenario("held", more, "held"),
        Scenario("kept", some, "kept", streamed=False),
        Scenario("boast", some, "boasting", only="boaster"),
        Scenario("crawl", 3, "pool", "crawl", "steady"),
        Scenario("tiered", 3 * more, "tiered"),
        Scenario("seeking", some, "seeking", only="seeker"),
        Scenario("speaking", more, "speaking"),
    )


def jobs(todo: Sequence[Scenario]) -> Iterator[Job]:
    """Yield all calls, numbered."""
    number = 0
    for scenario in todo:
        for at in range(scenario.calls):
            # Of a count that cannot be, limits count what was held, which no row has: bob is the one with limits.
            client = "ada" if scenario.name == "boast" else list(CLIENTS)[number % 2]
            tags = {"half": "odd" if number % 2 else "even"} if number % 3 else {}
            yield Job(number, scenario, client, tags, PATIENCE_S if at < scenario.leave else WAIT_S)
            number += 1


def configuration(fleet: Fleet, fleet_port: int) -> dict[str, Any]:
    """Return the settings of a gateway before the fleet."""

    def deployments(*names: str, **more: Any) -> list[dict[str, Any]]:
        return [{**_deployment(fleet.personas[name]), **more} for name in names]

    def provider(persona: Persona) -> dict[str, Any]:
        keys: dict[str, Any] = {"api_key": f"key-only-of-{persona.name}"}
        if persona.keys:
            keys = {"api_keys": {name: key_of(name, persona) for name in persona.keys}}
        said: dict[str, Any] = {
            "kind": "openai_compatible",
            "base_url": f"http://127.0.0.1:{fleet_port}/{persona.name}/v1",
        }
        more: dict[str, dict[str, Any]] = {
            "speaker": {"apis": ["chat", "messages"]},
            "narrow": {"preset": "gemini"},
        }  # which takes no seed
        return said | keys | more.get(persona.name, {})

    single = {"mode": "single"}
    race: dict[str, Any] = {"mode": "race", "width": 2, "budget": 1.0, "audit_share": 0.3}
    hedge = {"mode": "hedge", "hedge_delay_s": HEDGE_S, "budget": 1.0}
    return {
        "replica": REPLICA,
        "region": REGION,
        "clients": {
            name: {"key_sha256": hashlib.sha256(key.encode()).hexdigest(), **CLIENT_LIMITS.get(name, {})}
            for name, key in (CLIENTS | VIEWER).items()
        },
        "providers": {name: provider(persona) for name, persona in fleet.personas.items()},
        "models": {
            "race": {"deployments": deployments(*RACING), "race": race, "usd_per_day": MODEL_USD},
            "pool": {"deployments": deployments(*POOL), "race": single},
            "slow": {"deployments": deployments("slow"), "race": single},
            "hedged": {"deployments": deployments("steady", "swift"), "race": hedge},
            "thoughtful": {"deployments": deployments("thinker", "ponder"), "race": race | {"win_on": "answer"}},
            "speaker": {"deployments": deployments("speaker"), "race": single},
            "faulty": {"deployments": deployments("faulty", "large"), "race": single},
            "choked": {"deployments": deployments("choked", "large"), "race": single},
            "broken": {"deployments": deployments("broken"), "race": single, "fallbacks": ["pool"]},
            "careless": {"deployments": deployments("careless"), "race": single},
            "narrow": {"deployments": deployments("narrow", drop_params=True), "race": single},
            "torn": {
                "deployments": [*deployments("rip"), *deployments("heir", continues="prefix")],
                "race": single,
                "takeover": "always",
            },
            "spoken": {
                "deployments": deployments("steady", "swift"),
                "race": race | {"profile": PROFILE, "win_on": "sentence"},
            },
            "strict": {"deployments": deployments("sloppy", "steady"), "race": race | {"win_on": "valid"}},
            "held": {
                "deployments": deployments("early", "writer"),
                "race": race | {"hold": True, "objective": "completion"},
            },
            "kept": {"deployments": deployments("steady", "swift"), "race": race | {"keep_rival": True}},
            "boasting": {"deployments": deployments("boaster"), "race": single},
            "tiered": {"deployments": deployments(*TIERED), "race": race},
            "seeking": {"deployments": deployments("seeker"), "race": single},
            "speaking": {"deployments": deployments(*SPEAKING), "race": race},
        },
    }


def key_of(name: str, persona: Persona) -> str:
    """Return one of a provider's keys."""
    return f"key-{name}-of-{persona.name}"


def prices(persona: Persona) -> dict[str, float]:
    """Return what a provider charges, US dollars per million tokens."""
    each = {
        "input": persona.input_usd,
        "output": persona.output_usd,
        "cached_input": persona.cached_usd,
        "cache_write": persona.write_usd,
    }
    return {kind: round(usd * 1e6, 9) for kind, usd in each.items() if usd is not None}


def _deployment(persona: Persona) -> dict[str, Any]:
    price: dict[str, Any] = prices(persona)
    price |= {} if persona.speaks_usd is None else {"audio_output": persona.speaks_usd * 1e6}
    price |= {"web_search": persona.search_usd} if persona.searches else {}
    if persona.tiers:
        price["tiers"] = {
            tier: {kind: usd * factor for kind, usd in prices(persona).items()}
            for tier, factor in persona.tiers.items()
            if tier
        }
    return {
        "deployment": f"{persona.name}/m",
        "price_per_mtok": price,
        "bills_after_disconnect": persona.bills_on,
        "capabilities": {"reasoning": bool(persona.thinks)},  # else it may think unseen, and its bounds are wide
    }


async def drive(port: int, todo: Sequence[Scenario], done: Callable[[], None]) -> list[Made]:
    """Make all calls, some at a time; ``done`` hears of each. Return what their clients saw, in order."""
    waiting = jobs(todo)
    made: list[Made] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def work() -> None:
            for job in waiting:
                made.append(await _call(session, port, job))
                done()

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(work())
    return sorted(made, key=lambda one: one.job.number)


async def counted(port: int) -> dict[str, Any]:
    """Return what limits have counted: of the client that has all by the limit, and of the model as ``model``."""
    url = f"http://127.0.0.1:{port}"
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {VIEWER['eye']}"}) as session:
        async with session.get(f"{url}/api/usage") as response:
            rows = {row["client"]: row for row in (await response.json())["data"]}
        async with session.get(f"{url}/metrics") as response:
            said = await response.text()
    left = re.search(r'^holeshot_model_left_usd\{model="race"\} (\S+)$', said, re.MULTILINE)
    found = {each["limit"]: each["used"] for each in rows["bob"]["limits"]}
    return found | {"model": MODEL_USD - float(left[1] if left else "nan"), "minute": time.time() // 60}


def asks_tools(job: Job) -> bool:
    """Return whether a call offers a tool."""
    return job.scenario.kind in {"tool", "broken", "strict"}


async def _call(session: aiohttp.ClientSession, port: int, job: Job) -> Made:
    scenario = job.scenario
    body: dict[str, Any] = {
        "model": scenario.model,
        "stream": scenario.streamed,
        "max_tokens": MAX_TOKENS,
        "messages": [{"role": "user", "content": f"call {job.number} {scenario.kind} {FILLER}"}],
    }
    if job.number % 2:
        body["temperature"] = TEMPERATURE
    if asks_tools(job):
        body["tools"] = [TOOL]
    if scenario.name == "narrow":
        body["seed"] = 1
    if scenario.model == "torn":
        body["stream_options"] = {"include_usage": True}
        body["provider"] = {"order": ["rip", "heir"]}
    asked = ASKED[job.number % len(ASKED)] if scenario.model == "tiered" else None
    body |= {} if asked is None else {"service_tier": asked}
    body |= {"web_search_options": {}} if scenario.model == "seeking" else {}
    if scenario.only is not None:
        body["provider"] = {"only": [scenario.only]}
    headers = {"x-request-id": str(job.number), "authorization": f"Bearer {CLIENTS[job.client]}"}
    if job.tags:
        headers["x-holeshot-tags"] = ",".join(f"{tag}={value}" for tag, value in job.tags.items())
    if job.deadline_ms is not None:
        headers["x-holeshot-deadline-ms"] = str(job.deadline_ms)
    url = f"http://127.0.0.1:{port}/v1/{scenario.path}"
    data = json.dumps(body).encode()
    headers["content-type"] = "application/json"
    made = Made(job, time.monotonic(), datetime.now(UTC))
    try:
        async with asyncio.timeout(job.patience_s), session.post(url, data=data, headers=headers) as response:
            made.id = response.headers.get("x-holeshot-call-id")
            await (_listen(response, made) if scenario.streamed else _take(response, made))
            made.status = response.status
    except TimeoutError:
        pass  # it has left
    made.ended_at = time.monotonic()
    return made


async def _take(response: aiohttp.ClientResponse, made: Made) -> None:
    told = await response.json()
    made.byte_at = made.first_at = time.monotonic()
    made.text = told["choices"][0]["message"]["content"]


async def _listen(response: aiohttp.ClientResponse, made: Made) -> None:
    async for line in response.content:
        made.byte_at = made.byte_at or time.monotonic()
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        made.usage = event.get("usage") or made.usage
        text, reasoning = _texts(event)
        if (text or reasoning) and made.first_at is None:
            made.first_at = time.monotonic()
        made.text += text
        made.reasoning += reasoning


def _texts(event: dict[str, Any]) -> tuple[str, str]:
    """Return what an event of either API adds to the answer, and to the reasoning before it."""
    if event.get("type") == "content_block_delta":
        return event["delta"].get("text", ""), ""
    for choice in event.get("choices", ()):
        delta = choice["delta"]
        calls = delta.get("tool_calls") or ()
        return "".join([delta.get("content") or "", *(one["function"]["arguments"] for one in calls)]), (
            delta.get("reasoning_content") or ""
        )
    return "", ""
