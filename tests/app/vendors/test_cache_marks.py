"""Agents' sessions at strict vendors that count what is in their caches: alone and raced, with the setting and without.

Three sessions of two people, in the shapes of Claude Code's requests (told not to mark anything, as its
DISABLE_PROMPT_CACHING does), of Codex' and of Gemini's. All begin with the same instructions and tools.
"""

import json
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from strict_vendors import Served, running_vendor
from tests.app.gateway.key_desk import sha256
from tests.app.gateway.running_gateway import RunningGateway, serving

Json = dict[str, Any]

INSTRUCTIONS = "You are a coding agent. Read before you write, and be brief. " * 330  # some 20 KB
SCHEMA: Json = {"type": "object", "properties": {"path": {"type": "string", "description": "Where it is. " * 40}}}
NAMES = ("read", "write", "search", "run")
PEOPLE = {"one": "ann", "two": "ann", "three": "bob"}
TURNS = 5
NOTHING_ADDED: Json = {}
PLACES: Mapping[str, tuple[str, str]] = {
    "anthropic": ("anthropic", "claude-sonnet-4-5"),
    "bedrock": ("bedrock_converse", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
}
PRICE = {"input": 3.0, "output": 15.0, "cached_input": 0.3, "cache_write": 3.75}


class Told(NamedTuple):
    """What vendors told of all prompts: tokens, and how many of them were read from caches and written to them."""

    prompt: int
    read: int
    written: int
    cost: float  # of the prompts, in tokens at the price of input

    @property
    def share(self) -> float:
        return self.read / self.prompt


def claude_code(session: str, turn: int, *, marks: bool = False) -> tuple[str, Json]:
    note = f"x-anthropic-billing-header: cc_version=2.1.104.e2c; cc_entrypoint=cli; cch={turn:05x};"
    system: list[Json] = [{"type": "text", "text": note}, {"type": "text", "text": INSTRUCTIONS}]
    messages: list[Json] = [{"role": "user", "content": [{"type": "text", "text": f"Mend {session}."}]}]
    for number in range(turn):
        call = f"toolu_{session}_{number}"
        messages += [
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": call, "name": "read", "input": {"path": "a"}}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": call, "content": f"line {number} of {session}\n" * 120},
                    {"type": "text", "text": "say: done"},
                ],
            },
        ]
    tools: list[Json] = [{"name": name, "description": name, "input_schema": SCHEMA} for name in NAMES]
    if marks:
        for block in (system[-1], messages[-1]["content"][-1]):
            block["cache_control"] = {"type": "ephemeral"}
    user = {"device_id": PEOPLE[session] * 8, "account_uuid": "", "session_id": session}
    body = {"max_tokens": 900, "system": system, "messages": messages, "tools": tools}
    return "/v1/messages", {**body, "metadata": {"user_id": json.dumps(user)}}


def codex(session: str, turn: int) -> tuple[str, Json]:
    said: list[Json] = [_text("developer", "Sandbox: read-only."), _text("user", f"Mend {session}.")]
    for number in range(turn):
        call = f"call_{session}_{number}"
        said += [
            {"type": "function_call", "call_id": call, "name": "read", "arguments": '{"path":"a"}'},
            {"type": "function_call_output", "call_id": call, "output": f"line {number} of {session}\n" * 120},
            _text("assistant", "I have read it."),
            _text("user", "say: done"),
        ]
    tools = [{"type": "function", "name": name, "parameters": SCHEMA, "strict": False} for name in NAMES]
    more = {"store": False, "include": ["reasoning.encrypted_content"], "parallel_tool_calls": True}
    return "/v1/responses", {"instructions": INSTRUCTIONS, "input": said, "tools": tools, **more}


def codex_of_171(session: str, turn: int) -> tuple[str, Json]:
    """Return a turn as Codex 0.171 asks: instructions are an item, with an id of the session, which is the key too."""
    path, body = codex(session, turn)
    said = [_text("developer", body.pop("instructions")), *body["input"]]
    ids = (uuid.uuid5(uuid.NAMESPACE_OID, f"{session} {number}") for number in range(len(said)))
    body["input"] = [
        {"type": "message", "id": f"msg_{made}", **each} if each["type"] == "message" else each
        for made, each in zip(ids, said, strict=True)
    ]
    return path, {**body, "tool_choice": "auto", "reasoning": None, "prompt_cache_key": session}


def _text(role: str, text: str) -> Json:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def chat(session: str, turn: int) -> tuple[str, Json]:
    said: list[Json] = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": f"Mend {session}."}]
    for number in range(turn):
        said += [
            {"role": "assistant", "content": f"line {number} of {session}\n" * 120},
            {"role": "user", "content": "say: done"},
        ]
    return "/v1/chat/completions", {"messages": said, "max_tokens": 900}


def gemini(session: str, turn: int) -> tuple[str, Json]:
    said: list[Json] = [{"role": "user", "parts": [{"text": f"Mend {session}."}]}]
    for number in range(turn):
        said += [
            {"role": "model", "parts": [{"text": f"line {number} of {session}\n" * 120}]},
            {"role": "user", "parts": [{"text": "say: done"}]},
        ]
    system = {"parts": [{"text": INSTRUCTIONS}]}
    return "/v1beta/models/m:streamGenerateContent?alt=sse", {"systemInstruction": system, "contents": said}


APIS = {"messages": claude_code, "responses": codex, "codex 0.171": codex_of_171, "chat": chat, "gemini": gemini}


@asynccontextmanager
async def gateway(
    folder: Path, names: Sequence[str], *, added: Json = NOTHING_ADDED, **settings: Any
) -> AsyncIterator[tuple[RunningGateway, dict[str, Served]]]:
    """A gateway with one model at strict vendors; each has a price, so that its cache counts.

    ``added``: further settings of its deployments.
    """
    async with AsyncExitStack() as stack:
        vendors = {name: await stack.enter_async_context(running_vendor(name)) for name in names}
        providers = {
            name: {"preset": PLACES[name][0], "base_url": vendor.base_url, "api_key": vendor.key}
            for name, vendor in vendors.items()
        }
        deployments = [
            {"deployment": f"{name}/{PLACES[name][1]}", "price_per_mtok": PRICE, "drop_params": True, **added}
            for name in names
        ]
        people = {name: {"key_sha256": sha256(f"hs-{name}")} for name in set(PEOPLE.values())}
        running = await stack.enter_async_context(
            serving(
                folder,
                {"unused": None},
                providers=providers,
                models={"m": {"deployments": deployments, **settings}},
                clients=people,
            )
        )
        yield running, vendors


async def ask(running: RunningGateway, api: str, session: str, asked: tuple[str, Json], *, named: bool = True) -> None:
    path, body = asked
    sent = body if api == "gemini" else {**body, "model": "m", "stream": True}
    said = {"authorization": f"Bearer hs-{PEOPLE.get(session, 'ann')}", **({"session-id": session} if named else {})}
    async with running.http.post(f"{running.url}{path}", json=sent, headers=said) as response:
        assert response.status == 200, await response.text()
        await response.read()


async def told(running: RunningGateway, api: str, *, turns: int = TURNS) -> Told:
    """Hold the sessions, a turn of each in turns, and return what vendors told of the answers."""
    for turn in range(turns):
        for session in PEOPLE:
            await ask(running, api, session, APIS[api](session, turn))
    return await counted(running)


async def counted(running: RunningGateway) -> Told:
    names = ("prompt_tokens", "cached_tokens", "cache_write_tokens")
    rows = await running.rows(f"select {', '.join(names)} from attempts where outcome = 'won'")
    prompt, read, written = (sum(row[name] or 0 for row in rows) for name in names)
    return Told(prompt, read, written, prompt - 0.9 * read + 0.25 * written)


OPENAIS = {"input": 4.0, "output": 20.0, "cached_input": 0.4, "cache_write": 5.0}


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
async def test_openai_reads_of_other_conversations_what_is_marked_and_bills_what_it_writes(
    tmp_path: Path, api: str
) -> None:
    found = dict[str, Told]()
    for name, more in {"plain": {}, "marked": {"cache_marks": "auto"}}.items():
        (folder := tmp_path / name).mkdir()
        async with running_vendor("openai") as vendor:
            deployment = {"deployment": "openai/gpt-5.6", "price_per_mtok": OPENAIS, "drop_params": True}
            async with serving(
                folder,
                {"unused": None},
                providers={"openai": {"base_url": vendor.base_url, "api_key": vendor.key}},
                models={"m": {"deployments": [deployment], **ALONE, **more}},
                clients={name: {"key_sha256": sha256(f"hs-{name}")} for name in set(PEOPLE.values())},
            ) as running:
                for turn in range(3):
                    for session in PEOPLE:
                        path, body = APIS[api](session, turn)
                        if api == "responses":
                            body["input"] = [_text("developer", body.pop("instructions")), *body["input"]]
                        await ask(running, api, session, (path, body))
                found[name] = await counted(running)
                [row] = await running.rows("select sum(cost_usd) usd, sum(completion_tokens) told from attempts")
            assert vendor.said == ""
            sent = [json.dumps(each.body).count('"prompt_cache_breakpoint"') for each in vendor.seen]
            assert set(sent) == ({0} if name == "plain" else {0, 1}), sent
        used = found[name]
        usd = 4.0 * (used.prompt - used.read - used.written) + 0.4 * used.read + 5.0 * used.written
        assert row["usd"] == pytest.approx((usd + 20.0 * row["told"]) / 1e6)
        assert used.written > 0
    assert found["marked"].read > found["plain"].read, found
    assert found["marked"].cost < found["plain"].cost, found


def marks(vendor: Served) -> list[int]:
    """Return how many marks each request has that came."""
    bodies = [json.dumps(each.body) for each in vendor.seen]
    return [body.count('"cache_control"') + body.count('"cachePoint"') for body in bodies]


ALONE: Json = {"race": {"mode": "single", "budget": 0}}
RACED: Json = {"race": {"mode": "race", "width": 2, "max_prompt_tokens": 100_000}}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("api", APIS)
async def test_sessions_are_cached_with_the_setting_and_not_without(tmp_path: Path, api: str, place: str) -> None:
    async with gateway(tmp_path, [place], cache_marks="auto", **ALONE) as (running, vendors):
        found = await told(running, api)
        assert [each.said for each in vendors.values()] == [""]
    assert found.share > 0.75, found
    assert found.cost < 0.45 * found.prompt, found


@pytest.mark.parametrize("place", PLACES)
async def test_without_the_setting_nothing_is(tmp_path: Path, place: str) -> None:
    async with gateway(tmp_path, [place], **ALONE) as (running, _):
        assert (await told(running, "messages", turns=3))[1:3] == (0, 0)


@pytest.mark.parametrize("api", APIS)
async def test_raced_sessions_are_cached_too(tmp_path: Path, api: str) -> None:
    async with gateway(tmp_path, list(PLACES), cache_marks="auto", **RACED) as (running, vendors):
        found = await told(running, api)
        assert [each.said for each in vendors.values()] == [""] * 2
    assert found.share > 0.7, found
    assert found.cost < 0.5 * found.prompt, found


async def test_what_comes_once_is_not_marked_and_what_comes_again_is_as_far_as_it_does(tmp_path: Path) -> None:
    def other(text: str) -> tuple[str, Json]:
        path, body = chat("one", 0)
        return path, {**body, "messages": [{"role": "system", "content": text * 3000}, body["messages"][-1]]}

    async with gateway(tmp_path, ["anthropic"], cache_marks="auto", **ALONE) as (running, vendors):
        for asked in (other("One. "), other("Two. "), other("One. "), chat("one", 0), chat("two", 0), chat("two", 1)):
            await ask(running, "chat", "one", asked, named=False)
        sent = [each.body["system"] for each in vendors["anthropic"].seen]
        assert marks(vendors["anthropic"]) == [0, 0, 1, 0, 1, 3]
        assert [isinstance(system, str) for system in sent] == [True, True, False, True, False, False]


async def test_a_later_turn_of_an_agent_is_marked_though_no_other_was_seen_here(tmp_path: Path) -> None:
    async with gateway(tmp_path, ["anthropic"], cache_marks="auto", **ALONE) as (running, vendors):
        await ask(running, "chat", "one", chat("one", 3))
        await ask(running, "responses", "two", codex("two", 0))
        assert marks(vendors["anthropic"]) == [3, 0]


async def test_who_is_asked_beside_the_first_is_told_from_the_second_time_on(tmp_path: Path) -> None:
    async with gateway(tmp_path, list(PLACES), cache_marks="auto", **RACED) as (running, vendors):
        for turn, mode in enumerate(("single", "single", "race", "race")):
            path, body = claude_code("one", turn)
            await ask(running, "messages", "one", (path, {**body, "race": {"mode": mode}}))
        first, beside = sorted(map(marks, vendors.values()), key=len, reverse=True)
        assert first == [0, 3, 3, 3]
        assert beside == [0, 3]


async def test_a_clients_own_marks_are_sent_as_they_are(tmp_path: Path) -> None:
    async with gateway(tmp_path, ["anthropic"], cache_marks="auto", **ALONE) as (running, vendors):
        for turn in range(4):
            await ask(running, "messages", "one", claude_code("one", turn, marks=True))
        assert marks(vendors["anthropic"]) == [2] * 4
        assert (await counted(running)).share > 0.6


async def test_what_the_operator_adds_to_be_cached_is_the_only_mark(tmp_path: Path) -> None:
    added = {"extra_body": {"cache_control": {"type": "ephemeral"}}}  # with four marks it would be a fifth, a 400
    async with gateway(tmp_path, ["anthropic"], added=added, cache_marks="auto", **ALONE) as (running, vendors):
        for turn in range(3):
            await ask(running, "messages", "one", claude_code("one", turn))
        assert marks(vendors["anthropic"]) == [1] * 3
