"""A conversation over several keys of a provider keeps its prompt cache, alone and raced, in each API."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from providers.simulator import Gate, Hang, Raw, ReceivedRequest, Status, Step, answer
from tests.app.gateway.apis.test_dialects import MESSAGE_BYTES, RESPONSE_BYTES, speaking
from tests.app.gateway.apis.test_gemini import TEXT_BYTES as GEMINI_BYTES
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve

KEYS = {"api_key": None, "api_keys": ["key-one-0123456789", "key-two-0123456789", "key-three-0123456789"]}
LONG = "Be brief and polite. " * 300


def conversation(name: str, turns: int, ask: Callable[[str], Any], told: Callable[[str], Any]) -> list[list[Any]]:
    """Return the turns of a conversation, each of which has all that was said before."""
    found: list[Any] = [ask(f"{name}: a question")]
    sent = [list(found)]
    for turn in range(turns - 1):
        found += [told("Hello"), ask(f"More of {turn}. " * 50)]
        sent.append(list(found))
    return sent


def chat(name: str, turns: int) -> list[tuple[str, dict[str, Any]]]:
    system = {"role": "system", "content": LONG}
    return [
        ("/v1/chat/completions", {"model": MODEL, "messages": [system, *said]})
        for said in conversation(name, turns, *_roles("assistant"))
    ]


def messages(name: str, turns: int) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("/v1/messages", {"model": MODEL, "max_tokens": 9, "system": LONG, "messages": said})
        for said in conversation(name, turns, *_roles("assistant"))
    ]


def responses(name: str, turns: int) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("/v1/responses", {"model": MODEL, "instructions": LONG, "input": said, "store": False})
        for said in conversation(name, turns, *_roles("assistant"))
    ]


def gemini(name: str, turns: int) -> list[tuple[str, dict[str, Any]]]:
    def of(role: str) -> Callable[[str], Any]:
        return lambda text: {"role": role, "parts": [{"text": text}]}

    return [
        (
            f"/v1beta/models/{MODEL}:generateContent",
            {"systemInstruction": {"parts": [{"text": LONG}]}, "contents": said},
        )
        for said in conversation(name, turns, of("user"), of("model"))
    ]


def _roles(model: str) -> tuple[Callable[[str], Any], Callable[[str], Any]]:
    return lambda text: {"role": "user", "content": text}, lambda text: {"role": model, "content": text}


APIS = [
    pytest.param(chat, {}, answer("Hello"), id="chat"),
    pytest.param(messages, speaking("messages"), [Raw(MESSAGE_BYTES, token=True)], id="messages"),
    pytest.param(responses, speaking("responses"), [Raw(RESPONSE_BYTES, token=True)], id="responses"),
    pytest.param(gemini, speaking("gemini"), [Raw(GEMINI_BYTES, token=True)], id="gemini"),
]


def key_of(request: ReceivedRequest) -> str:
    headers = request.headers
    return headers.get("authorization") or headers.get("x-api-key") or headers["x-goog-api-key"]


def _alike(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their beginning."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def cached_share(received: Sequence[ReceivedRequest]) -> float:
    """Return which part of what a provider read was in the cache of the request's key."""
    caches: dict[str, list[str]] = {}
    read = cached = 0
    for request in received:
        prompt = json.dumps([request.body.get(name) for name in PROMPT])
        cache = caches.setdefault(key_of(request), [])
        cached += max((_alike(prompt, each) for each in cache), default=0)
        read += len(prompt)
        cache.append(prompt)
    return cached / max(1, read)


PROMPT = ("system", "systemInstruction", "instructions", "messages", "contents", "input")


async def hold(running: RunningGateway, turns: Sequence[tuple[str, dict[str, Any]]], *, stream: bool = False) -> None:
    for path, body in turns:
        way = path.replace(":generateContent", ":streamGenerateContent?alt=sse") if stream else path
        asked = body if "contents" in body else {**body, "stream": stream}
        async with running.post(asked, path=way) as response:
            assert response.status == 200, await response.text()
            await response.read()


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("names", [("alpha",), ("alpha", "beta")], ids=["alone", "raced"])
@pytest.mark.parametrize(("talk", "provider", "script"), APIS)
async def test_the_turns_of_a_conversation_use_one_key(
    serve: Serve, *, talk: Any, provider: dict[str, Any], script: Any, names: tuple[str, ...], stream: bool
) -> None:
    config = {"providers": {name: {**provider, **KEYS} for name in names}}
    async with serve(**dict.fromkeys(names, script), config=config) as running:
        await hold(running, talk("one", 8), stream=stream)
        for name in names:
            received = running[name].received
            assert len({key_of(each) for each in received}) <= 1
        assert max(cached_share(running[name].received) for name in names) > 0.8


def claude_code(name: str, turns: int) -> list[tuple[str, dict[str, Any]]]:
    """Return turns as Claude Code asks: a note for Anthropic, which changes with each, begins the system prompt."""
    talk = messages(name, turns)
    for number, (_, body) in enumerate(talk):
        note = f"x-anthropic-billing-header: cc_version=2.1.104.e2c; cc_entrypoint=cli; cch={number:05x};"
        body["system"] = [{"type": "text", "text": note}, {"type": "text", "text": LONG}]
    return talk


@pytest.mark.parametrize("is_anthropic", [True, False])
async def test_claude_codes_note_for_anthropic_costs_no_cache(serve: Serve, *, is_anthropic: bool) -> None:
    provider = {"preset": "anthropic"} if is_anthropic else speaking("messages")
    async with serve(
        alpha=[Raw(MESSAGE_BYTES, token=True)], config={"providers": {"alpha": {**provider, **KEYS}}}
    ) as running:
        await hold(running, claude_code("one", 8))
        received = running["alpha"].received
        assert len({key_of(each) for each in received}) == 1
        sent = [each.body["system"][0]["text"].startswith("x-anthropic-billing-header") for each in received]
        assert sent == [is_anthropic] * 8
        assert is_anthropic or cached_share(received) > 0.8


async def test_conversations_are_spread_over_the_keys(serve: Serve) -> None:
    async with serve(alpha=answer("Hello"), config={"providers": {"alpha": KEYS}}) as running:
        talks = [chat(f"conversation {number}", 3) for number in range(12)]
        for turn in zip(*talks, strict=True):
            await hold(running, turn)
        received = running["alpha"].received
    used = Counter(key_of(each) for each in received[:12])
    assert len(used) == 3
    assert max(used.values()) <= 6
    keys = [key_of(each) for each in received]
    assert keys[:12] == keys[12:24] == keys[24:]


async def test_a_rate_limited_key_is_left_and_the_next_one_is_kept(serve: Serve) -> None:
    async with serve(alpha=answer("Hello"), config={"providers": {"alpha": KEYS}}) as running:
        turns = chat("one", 6)
        await hold(running, turns[:2])
        running["alpha"].once([Status(429, {"error": {"message": "slower"}}, headers={"retry-after": "20"})])
        await hold(running, turns[2:])
        first, again, refused, *others = [key_of(each) for each in running["alpha"].received]
    assert first == again == refused
    assert len(others) == 4
    assert len({first, *others}) == 2
    assert len({*others}) == 1


async def test_without_affinity_the_keys_take_turns(serve: Serve) -> None:
    config = {"providers": {"alpha": KEYS}, "models": {MODEL: {"race": {"cache_affinity": False}}}}
    async with serve(alpha=answer("Hello"), config=config) as running:
        await hold(running, chat("one", 6))
        used = Counter(key_of(each) for each in running["alpha"].received)
    assert sorted(used.values()) == [2, 2, 2]


async def test_two_replicas_use_the_same_key(serve: Serve) -> None:
    talks = [chat(f"conversation {number}", 2) for number in range(6)]
    used = []
    for turn in range(2):
        async with serve(alpha=answer("Hello"), config={"providers": {"alpha": KEYS}}) as running:
            await hold(running, [talk[turn] for talk in talks])
            used.append([key_of(each) for each in running["alpha"].received])
    assert used[0] == used[1]


def _billed(prompt_tokens: int, cached_tokens: int) -> Sequence[Step]:
    """Return an answer of one token that says how much of its prompt was in the cache."""
    choice = {"index": 0, "delta": {"content": "Hello"}, "finish_reason": "stop"}
    usage = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": 1,
        "total_tokens": prompt_tokens + 1,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    told = {**chunk, "choices": [], "usage": usage}
    return [Raw(f"data: {json.dumps(each)}\n\n".encode(), token=True) for each in (chunk, told)] + [
        Raw(b"data: [DONE]\n\n")
    ]


PRICE = {"input": 10.0, "output": 0.0, "cached_input": 1.0}


@pytest.mark.usefixtures("views")
@pytest.mark.parametrize("winner", ["alpha", "beta"])
async def test_what_a_race_lost_in_caches_is_in_what_racing_added(serve: Serve, winner: str) -> None:
    names = ("alpha", "beta")
    loser = next(name for name in names if name != winner)
    deployments = [{"deployment": f"{name}/m", "price_per_mtok": PRICE} for name in names]
    config = {"models": {MODEL: {"deployments": deployments, "race": {"mode": "race", "width": 2}}}}
    async with serve(alpha=None, beta=None, config=config) as running:
        running.prefer(*names)
        turns = chat("one", 3)
        running["alpha"].script, running["beta"].script = _billed(1700, 0), [Hang()]
        await hold(running, turns[:1])  # alpha has it
        running[winner].script = [Gate(running[loser].requested), *_billed(1700, 1600 if winner == "alpha" else 0)]
        running[loser].script = [Hang()]
        await hold(running, turns[1:2])
        rows = await running.rows(
            "select c.cost_usd, c.duplicate_cost_usd, a.provider from calls c"
            " join attempts a on a.id = c.winner_attempt_id order by c.started_at"
        )
        [value] = await running.rows("select * from race_value")
    second = rows[-1]
    winner_usd, loser_usd = (2600e-6, 17_000e-6) if winner == "alpha" else (17_000e-6, 1700e-6)
    uncached_usd = 17_000e-6
    assert second["provider"] == winner
    assert second["cost_usd"] == pytest.approx(winner_usd + loser_usd, rel=0.01)
    assert second["duplicate_cost_usd"] == pytest.approx(uncached_usd, rel=0.01)
    added_usd = sum(row["duplicate_cost_usd"] for row in rows)
    assert value["duplicate_cost_usd"] == pytest.approx(added_usd)
