"""Where conversations are had: strict stand-ins of vendors, and gateways before them, alone and racing.

Each vendor is served twice, as two accounts, so that two of it can be raced: what one keeps or seals, the other does
not know. ``Ground.exchanges`` has each refusal, also where another one answered. ``mixed.py`` has models of several
vendors: four that race, each in an API of its own, and two of which one has no room in the middle of a conversation.
"""

import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from strict_vendors import NAMES, Breaks, Reply, Served, running_vendor
from tests.clients import mixed
from tests.clients.case import Target
from tests.clients.gateways import gateway
from tests.clients.targets import GATEWAY_FORBIDDEN_KEY, GATEWAY_KEY, WRONG_KEY, sha256

Json = dict[str, Any]

DIRECTLY = "directly"
SETUPS = (DIRECTLY, "alone", "raced with its like", "raced with another API")
MIXED = "mixed"  # the setup of a mix: the only one, but where something goes wrong as it does directly
EVERY_API = ("chat", "responses", "messages", "gemini")


class Place(msgspec.Struct, frozen=True):
    """A model at a vendor, and what a gateway is told of the provider; ``base`` is its API's, if it has several.

    ``sees`` says whether the model takes pictures, and ``parallel`` whether it calls several tools at once.
    """

    vendor: str
    model: str
    provider: Mapping[str, Any]
    base: str | None = None
    sees: bool = True
    parallel: bool = True

    @property
    def name(self) -> str:
        """Both, as a row of the page has them."""
        return f"{self.vendor} {self.model}"


def _of(vendor: str, model: str, *, preset: str | None = None, **facts: Any) -> Place:
    return Place(vendor, model, **{"provider": {"preset": preset or vendor}, **facts})


PLACES = (
    _of("openai", "gpt-5"),
    _of("openai", "gpt-4.1"),
    _of("anthropic", "claude-haiku-4-5"),
    _of("anthropic", "claude-sonnet-5"),
    _of(
        "azure",
        "gpt-5-mini",
        base="/openai/v1",
        provider={"kind": "openai_compatible", "apis": ["chat", "responses"]},
    ),
    _of("google", "gemini-2.5-flash"),
    _of("bedrock", "us.anthropic.claude-haiku-4-5-20251001-v1:0", preset="bedrock_converse"),
    _of("mistral", "mistral-large-latest"),
    _of("groq", "openai/gpt-oss-120b", sees=False),
    _of("deepseek", "deepseek-v4-pro", sees=False),
    _of("xai", "grok-4.5"),
    _of("openrouter", "anthropic/claude-sonnet-4.5"),
    # What agents use in autumn 2026.
    _of("openai", "gpt-6.2-astra"),
    _of("anthropic", "claude-opus-5-5"),
    _of("anthropic", "claude-sonnet-5-5"),
    _of("anthropic", "claude-haiku-5-5"),
    _of("anthropic", "claude-fable-5-2"),
    _of("google", "gemini-3.8-flash"),
    _of("google", "gemini-4-argon"),
    _of("vllm", "Qwen/Qwen3.5-27B"),
    _of("llama_cpp", "qwen3.5-27b.gguf", sees=False, parallel=False),
    _of("ollama", "qwen3:8b", sees=False),
)
EVERYWHERE: Sequence[Place | mixed.Mix] = (*PLACES, *mixed.MIXES)
_OTHER_API = PLACES[2]
_OTHER_THAN_THAT = PLACES[0]
_PATHS = {
    "/chat/completions": "chat",
    "/responses": "responses",
    "/messages": "messages",
    "/models/{model}:generateContent": "gemini",
}


def setups_of(place: Place | mixed.Mix) -> tuple[str, ...]:
    """Return how a place's conversations are had."""
    if isinstance(place, mixed.Mix):
        return (DIRECTLY, MIXED) if place.goes else (MIXED,)
    return SETUPS


class Exchange(msgspec.Struct, frozen=True):
    """A request that came to a stand-in, and what was answered."""

    at: float
    vendor: str
    method: str
    path: str
    status: int
    asked: Any
    answered: Any = None  # of refusals


class Ground:
    """What conversations are had at: targets, in the order of the places, and what arrived behind them."""

    def __init__(self) -> None:
        self.targets: list[Target] = []
        self.exchanges: list[Exchange] = []
        self.missing: list[str] = []

    def between(self, began: float, ended: float) -> list[Exchange]:
        """Return what arrived in that time."""
        return [each for each in self.exchanges if began <= each.at <= ended]


@asynccontextmanager
async def ground(folder: Path, vendors: Sequence[str], setups: Iterable[str]) -> AsyncIterator[Ground]:
    """Serve vendors, and start a gateway for each setup; stop them when the block ends."""
    found = Ground()
    places = [place for place in PLACES if place.vendor in vendors or place.name in vendors]
    found.missing = sorted({place.vendor for place in places if place.vendor not in NAMES})
    places = [place for place in places if place.vendor in NAMES]
    # A program asks for more models than it is told of, so a gateway has all of these vendors.
    models = [place for place in PLACES if place.vendor in {each.vendor for each in places}]
    wanted = [
        setup
        for setup in (setups if places else ())
        if setup != SETUPS[3] or all(_partner(place).vendor in NAMES for place in places)
    ]
    async with AsyncExitStack() as stack:
        served: dict[tuple[str, str], Served] = {}
        partners = [_partner(place) for place in places] if SETUPS[3] in wanted else []
        needed = dict.fromkeys(place.vendor for place in (*places, *partners))
        for vendor in needed:
            for letter in "ab":
                key = "" if letter == "a" else f"{vendor}-of-another-account"
                one = await stack.enter_async_context(running_vendor(vendor, seed=letter, key=key))
                listen(one, f"{vendor}-{letter}", found.exchanges)
                served[vendor, letter] = one
        urls = {}
        for setup in SETUPS[1:]:
            if setup in wanted:
                home = folder / setup.replace(" ", "-")
                home.mkdir()
                config = configuration(setup, models, served, home)
                urls[setup] = await stack.enter_async_context(gateway(config, home))
        for place in places:
            if DIRECTLY in wanted:
                found.targets.append(_directly(place, served[place.vendor, "a"]))
            found.targets += [_behind(place, setup, url) for setup, url in urls.items()]
        for mix in mixed.MIXES:
            if mix.vendor in vendors or mix.name in vendors:
                found.targets += await _mixed(mix, folder, found, stack)
        yield found


async def _mixed(mix: mixed.Mix, folder: Path, found: Ground, stack: AsyncExitStack) -> list[Target]:
    """Serve the vendors of a mix, and start its gateway; where something goes wrong one talks to the vendor, too."""
    served = []
    for part in mix.parts:
        one = await stack.enter_async_context(running_vendor(part.vendor, seed=mix.name, context=mix.holds))
        listen(one, part.vendor, found.exchanges)
        served.append(one)
    mixed.fail(mix, served)  # after that, so that what fails on purpose is no refusal
    home = folder / mix.name.replace(" ", "-")
    home.mkdir()
    url = await stack.enter_async_context(gateway(mixed.configuration(mix, served, home), home))
    key = WRONG_KEY if mix.vendor == mixed.UNKNOWN else GATEWAY_KEY
    targets = [_target(mix, MIXED, url, key, apis=EVERY_API, models=mixed.NAMES)]
    if mix.goes:
        (part,), (one,) = mix.parts, served
        models = dict.fromkeys(EVERY_API, part.model)
        base = one.vendor.base
        targets.insert(0, _target(mix, DIRECTLY, one.root, one.key, apis=[part.api], base=base, models=models))
    return targets


def said(answered: Any) -> str:
    """Return the words of a refusal."""
    found = answered
    while isinstance(found, list | dict) and found:
        found = found[0] if isinstance(found, list) else found.get("error") or found.get("message") or str(found)
    return str(found)


def _partner(place: Place) -> Place:
    """Return who it is raced with that has another API."""
    return _OTHER_THAN_THAT if place.vendor == _OTHER_API.vendor else _OTHER_API


def configuration(setup: str, places: Sequence[Place], served: Mapping[tuple[str, str], Served], home: Path) -> Json:
    """Return the configuration of the gateway of one setup: each place's model under the vendor's own name."""
    providers: Json = {}
    models: Json = {}
    for place in places:
        behind = {
            SETUPS[1]: [(place, "a")],
            SETUPS[2]: [(place, "a"), (place, "b")],
            SETUPS[3]: [(place, "a"), (_partner(place), "a")],
        }[setup]
        for one, letter in behind:
            at = served[one.vendor, letter]
            url = at.root + _base(one, at)
            providers[f"{one.vendor}-{letter}"] = {**one.provider, "base_url": url, "api_key": at.key}
        models[place.model] = {
            "deployments": [f"{one.vendor}-{letter}/{one.model}" for one, letter in behind],
            "race": {"mode": "race", "width": len(behind), "max_prompt_tokens": 1_000_000},  # an agent's are long
        }
    return {
        "port": 0,
        "database_url": f"sqlite:///{home}/holeshot.db",
        "spool_dir": f"{home}/spool",
        "lame_duck_s": 0,
        "log_format": "json",
        "providers": providers,
        "models": models,
        "clients": {"suite": {"key_sha256": sha256(GATEWAY_KEY)}},
    }


def _base(place: Place, served: Served) -> str:
    return served.vendor.base if place.base is None else place.base


def _directly(place: Place, served: Served) -> Target:
    base = _base(place, served)
    paths = {path for _, path, _ in served.vendor.routes()}
    apis = [api for path, api in _PATHS.items() if base + path in paths]
    return _target(place, DIRECTLY, served.root, served.key, apis=apis, base=base)


def _behind(place: Place, setup: str, url: str) -> Target:
    return _target(place, setup, url, GATEWAY_KEY, apis=EVERY_API)


def _target(
    place: Place | mixed.Mix,
    setup: str,
    url: str,
    key: str,
    *,
    apis: Sequence[str],
    base: str = "",
    models: Mapping[str, str] | None = None,
) -> Target:
    return Target(
        name=f"{place.name}|{setup}",
        url=url,
        key=key,
        wrong_key=WRONG_KEY,
        forbidden_key=GATEWAY_FORBIDDEN_KEY,
        translates=setup != DIRECTLY,
        gateway=setup != DIRECTLY,
        models=dict(models or dict.fromkeys(EVERY_API, place.model)),
        troubled={},
        upstreams=[],
        apis=list(apis),
        base=base,
        sees=place.sees,
        parallel=place.parallel,
        long=isinstance(place, mixed.Mix) and place.is_long,
        goes=place.goes if isinstance(place, mixed.Mix) else "",
    )


def _is_wanted(served: Served) -> bool:
    """Say whether the last refusal is that of a prompt which a small context does not hold."""
    return served.vendor.context > 0 and served.refusals[-1].rule == "context"


def listen(served: Served, name: str, exchanges: list[Exchange]) -> None:
    """Note what arrives at a stand-in, and when; also on a WebSocket, where a refusal is an event."""
    answer, hear = served.vendor.answer, served.vendor.hear

    def heard(method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> Reply:
        reply = answer(method, url, headers, body)
        try:
            asked = msgspec.json.decode(body) if body else None
        except msgspec.DecodeError:
            asked = body.decode(errors="replace")
        if reply.status >= 400 and _is_wanted(served):
            return reply
        refusal = reply.body if reply.status >= 400 else None
        exchanges.append(Exchange(time.time(), name, method, url, reply.status, asked, refusal))
        return reply

    def heard_message(message: Any, connection: dict[str, Any]) -> tuple[list[Json], Breaks]:
        events, breaks = hear(message, connection)
        refusal = next((event for event in events if event["type"] == "error"), None)
        if refusal is not None and _is_wanted(served):
            return events, breaks
        status = 200 if refusal is None else refusal["status"]
        exchanges.append(Exchange(time.time(), name, "WEBSOCKET", served.vendor.base, status, message, refusal))
        return events, breaks

    served.vendor.answer = heard  # type: ignore[method-assign]  # it is told apart by nothing else
    served.vendor.hear = heard_message  # type: ignore[method-assign]  # as above
