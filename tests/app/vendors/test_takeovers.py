"""An answer that one strict vendor breaks off is finished, or given anew, by another one, which refuses nothing of it.

Who breaks, who goes on, the client's API and the history are drawn together; each answer has providers of its own, as
those that break are soon asked no more.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from providers import events
from strict_vendors import Served, running_vendor
from tests.app.gateway.running_gateway import RunningGateway, serving
from tests.support.searched import some
from tests.unit.providers.dialects.inside.test_any_conversation import APIS

Json = dict[str, Any]


class Place(NamedTuple):
    """A deployment at a stand-in: its vendor, the preset, the model, and what else its settings say."""

    vendor: str
    preset: str
    model: str
    provider: Mapping[str, Any] = {}
    deployment: Mapping[str, Any] = {}


PLACES: Mapping[str, Place] = {
    "openai": Place("openai", "openai", "gpt-5"),
    "openai-chat": Place("openai", "openai", "gpt-4o", {"apis": ["chat"]}),
    "openai-responses": Place("openai", "openai", "gpt-4o", {"apis": ["responses"]}),
    "claude": Place("anthropic", "anthropic", "claude-haiku-4-5"),
    "claude-new": Place("anthropic", "anthropic", "claude-opus-4-8"),
    "gemini": Place("google", "google", "gemini-2.5-flash"),
    "bedrock": Place("bedrock", "bedrock_converse", "us.anthropic.claude-haiku-4-5-20251001-v1:0"),
    "mistral": Place("mistral", "mistral", "mistral-large-latest"),
    "mistral-thinking": Place("mistral", "mistral", "mistral-medium-latest"),
    "deepseek": Place("deepseek", "deepseek", "deepseek-v4-flash", {}, {"continues": "prefix"}),
    "groq": Place("groq", "groq", "openai/gpt-oss-120b"),
    "vllm": Place("vllm", "vllm", "meta-llama/Llama-3.3-70B-Instruct", {"apis": ["chat"]}),
    "vllm-messages": Place("vllm", "vllm", "meta-llama/Llama-3.3-70B-Instruct", {"apis": ["messages"]}),
    "vllm-gemma": Place("vllm", "vllm", "google/gemma-3-27b-it", {"apis": ["chat"]}),
    "vllm-responses": Place("vllm", "vllm", "meta-llama/Llama-3.3-70B-Instruct", {"apis": ["responses"]}),
}
PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "gemini": "/v1beta/models/{model}:streamGenerateContent?alt=sse",
}
AT_ONCE = 12  # more would be refused, as too many for this machine
WHOLE = "The quick brown fox jumps over the lazy dog, and sleeps in the sun until the evening comes."
BREAKING = ("openai-chat", "openai-responses", "claude", "claude-new", "gemini", "bedrock", "mistral", "vllm")
GOING_ON = ("mistral", "deepseek", "claude", "vllm", "vllm-gemma", "vllm-responses")
NOT_GOING_ON = ("openai-chat", "openai-responses", "claude-new", "gemini", "bedrock", "groq", "vllm-messages")
THINKING = ("openai", "claude", "gemini", "bedrock", "mistral-thinking", "deepseek", "groq")
THINK: Mapping[str, Json] = {
    "chat": {"reasoning_effort": "high"},
    "responses": {"reasoning": {"effort": "high"}},
    "messages": {"thinking": {"type": "enabled", "budget_tokens": 20_000}, "max_tokens": 24_000},
    "gemini": {"generationConfig": {"thinkingConfig": {"thinkingBudget": 24_576, "includeThoughts": True}}},
}

USER: Json = {"kind": "user", "parts": [("text", "Hi")]}
ANSWERED: Json = {"kind": "answer", "text": "Hello.", "thought": None}
CALLED: Json = {
    "kind": "calls",
    "calls": [{"id": 0, "arguments": {"city": "Oslo"}}, {"id": 1, "arguments": {}}],
    "results": ["rain", "error"],
    "text": None,
    "after": None,
    "at": 0,
    "thought": None,
}
HISTORIES: Mapping[str, Sequence[Json]] = {
    "plain": [],
    "talk": [USER, ANSWERED],
    "tools": [USER, CALLED, ANSWERED],
    "tools, and more at once": [USER, {**CALLED, "text": "Let me see."}, ANSWERED, USER, CALLED, ANSWERED],
    "thoughts": [USER, {**ANSWERED, "thought": "Hm."}, USER, {**CALLED, "thought": "Hm."}, ANSWERED],
}


class Case(NamedTuple):
    """One answer: the client's API, who breaks it off, who is there to go on, after which history."""

    api: str
    first: str
    then: str
    history: str


def drawn(api: str, firsts: Sequence[str], thens: Sequence[str]) -> list[Case]:
    """Return a case of each who may go on, and some that the seed draws."""
    cases = [
        Case(api, first, then, history)
        for then, first, history in itertools.product(thens, firsts, HISTORIES)
        if PLACES[first].model != PLACES[then].model  # that is how the lines say who breaks off
        and not (api == "chat" and history == "thoughts" and "openai" in {PLACES[first].vendor, PLACES[then].vendor})
    ]  # OpenAI refuses a client's "reasoning_content" when it is asked directly; the gateway learns it from that
    always = [[case for case in cases if case.then == then][7 * number % 20] for number, then in enumerate(thens)]
    return some(cases, always, 6)


def asked(case: Case, lines: str, vendors: Mapping[str, Served], **fields: Any) -> Json:
    """Return the body of a request with the case's history, that ends with these lines."""
    last = {"kind": "user", "parts": [("text", f"Go on.\nsay: {WHOLE}\n{lines}")]}
    said = {"system": ["Be brief."], "turns": [*HISTORIES[case.history], last], "tools": "none", "written": "plain"}
    body = APIS[case.api]({**said, "tools": fields.pop("tools", "none")})
    signed = json.dumps(vendors["anthropic"].vendor.sign("Hm."))  # type: ignore[attr-defined] # Anthropic's has it
    return json.loads(json.dumps(body).replace('"sig"', signed)) | fields  # type: ignore[no-any-return] # as it was


@asynccontextmanager
async def gateway(
    folder: Path, cases: Sequence[Case], stall_s: float = 60.0, **settings: Any
) -> AsyncIterator[tuple[RunningGateway, dict[str, Served]]]:
    """A gateway with a model for each case, and the strict vendors behind it."""
    names = {"anthropic", *(PLACES[name].vendor for case in cases for name in (case.first, case.then))}
    async with AsyncExitStack() as stack:
        vendors = {name: await stack.enter_async_context(running_vendor(name)) for name in sorted(names)}
        providers: Json = {}
        models: Json = {}
        for number, case in enumerate(cases):
            for which, name in enumerate((case.first, case.then)):
                place, provider = PLACES[name], f"p{number}{'ab'[which]}"
                served = vendors[place.vendor]
                base_url = f"{served.root}/beta" if place.vendor == "deepseek" else served.base_url
                own = {"preset": place.preset, "base_url": base_url, "api_key": served.key}
                providers[provider] = {**own, **place.provider}
                models[f"{'mn'[which]}{number}"] = {
                    "deployments": [{"deployment": f"{provider}/{place.model}", **place.deployment}],
                    "race": {"mode": "single", "budget": 0},
                    **settings,
                    **({} if which else {"fallbacks": [f"n{number}"]}),
                }
        config: Json = {"providers": providers, "models": models, "timeouts": {"stall_timeout_s": stall_s}}
        running = await stack.enter_async_context(serving(folder, {"alpha": None}, **config))
        yield running, vendors


def texts_of(said: Json, api: str) -> str:
    """Return the text of an event or of a whole answer, without thoughts."""
    match api:
        case "chat":
            given = [choice.get("delta") or choice.get("message") or {} for choice in said.get("choices") or ()]
            found = [one.get("content") or "" for one in given]
            parts = [part for one in found if not isinstance(one, str) for part in one]
            return "".join([*(one for one in found if isinstance(one, str)), *(_text(part) for part in parts)])
        case "responses" if said.get("type") == "response.output_text.delta":
            return str(said["delta"])
        case "responses":
            items = [item for item in said.get("output") or () if item["type"] == "message"]
            return "".join(_text(part) for item in items for part in item["content"])
        case "messages":
            return _text(said.get("delta") or {}) + "".join(map(_text, said.get("content") or ()))
    parts = said.get("candidates", [{}])[0].get("content", {}).get("parts", ())
    return "".join(_text(part) for part in parts if not part.get("thought"))


def _text(part: Json) -> str:
    return str(part.get("text") or "")


async def told(running: RunningGateway, model: str, api: str, body: Json) -> tuple[str, bool, str]:
    """Return the text of a streamed answer, whether it ended as a whole one does, and all that came."""
    sent = body if api == "gemini" else {**body, "model": model, "stream": True}
    async with running.post(sent, path=PATHS[api].format(model=model)) as response:
        came = (await response.read()).decode()
        if response.status != 200:
            return "", False, f"{response.status} {came}"
    said = [json.loads(each.data) for each in events(came.encode()) if each.data.strip() not in {b"", b"[DONE]"}]
    text = "".join(texts_of(each, api) for each in said)
    ends = {"chat": "[DONE]", "responses": "response.completed", "messages": "message_stop", "gemini": '"STOP"'}
    if api == "responses" and "response" in (last := said[-1]) and (whole := texts_of(last["response"], api)) != text:
        text = f"{text}, and at its end {whole}"
    return text, ends[api] in came and '"error":{' not in came, came


def refused_of(vendors: Mapping[str, Served]) -> list[str]:
    """Return what vendors refused, but for what they were told to."""
    refusals = [(name, each) for name, vendor in vendors.items() for each in vendor.refusals]
    return [f"{name}: {each.message} {each.page}" for name, each in refusals if each.rule != "as asked for"]


async def each_told(
    running: RunningGateway, vendors: Mapping[str, Served], cases: Sequence[Case], lines: str, **fields: Any
) -> list[tuple[Case, str, bool, str]]:
    """Return what came of each case, asked several at once; ``{first}`` in the lines is the model that breaks."""

    async def ask(number: int, case: Case) -> tuple[Case, str, bool, str]:
        body = asked(case, lines.format(first=PLACES[case.first].model), vendors, **fields)
        async with few:
            return case, *await told(running, f"m{number}", case.api, body)

    few = asyncio.Semaphore(AT_ONCE)
    return await asyncio.gather(*(ask(number, case) for number, case in enumerate(cases)))


def wrong(answers: Iterable[tuple[Case, str, bool, str]]) -> list[str]:
    """Return what of the answers is not the whole text, once, with an end."""
    return [f"{case} {came[-700:]}" for case, text, is_whole, came in answers if (text, is_whole) != (WHOLE, True)]


@pytest.mark.parametrize("how", ["now", "silent"])
@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
async def test_what_one_breaks_off_another_finishes(tmp_path: Path, api: str, how: str) -> None:
    cases = drawn(api, BREAKING, GOING_ON)
    stall_s = 1.5 if how == "silent" else 60.0
    async with gateway(tmp_path, cases, stall_s, takeover="always") as (running, vendors):
        answers = await each_told(running, vendors, cases, f"cut: {how} at {{first}}")
        assert wrong(answers) == []
        assert refused_of(vendors) == []
        ends = [row["takeover"] for row in await running.rows("select takeover from calls")]
        assert ends == ["finished"] * len(cases)


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
async def test_who_goes_on_may_break_off_too(tmp_path: Path, api: str) -> None:
    cases = drawn(api, BREAKING, GOING_ON)
    cut = "".join(f"cut: now at {PLACES[name].model}\n" for name in BREAKING)
    async with gateway(tmp_path, cases, takeover="always") as (running, vendors):
        for case, text, _, came in await each_told(running, vendors, cases, cut):
            assert WHOLE.startswith(text), (case, came)
        assert refused_of(vendors) == []


@pytest.mark.parametrize("thinks", [False, True], ids=["plain", "thinks"])
@pytest.mark.parametrize("api", ["chat", "responses", "messages", "gemini"])
async def test_who_cannot_go_on_is_not_asked_to(tmp_path: Path, api: str, thinks: bool) -> None:
    able = GOING_ON if api == "gemini" or thinks else ()  # answers of this API, and thoughts, are not gone on with
    cases = drawn(api, THINKING if thinks else BREAKING, (*NOT_GOING_ON, *able))
    fields = THINK[api] if thinks else {}
    async with gateway(tmp_path, cases, takeover="always") as (running, vendors):
        for case, text, is_whole, came in await each_told(running, vendors, cases, "cut: now at {first}", **fields):
            assert WHOLE.startswith(text), (case, came)
            assert text or thinks, (case, came)
            assert not is_whole, case
            assert "error" in came, (case, came)
        assert refused_of(vendors) == []
        attempts = await running.rows("select provider, outcome from attempts")
        assert {row["provider"][-1] for row in attempts} == {"a"}


@pytest.mark.parametrize("kind", ["none", "full", "thinks"])
@pytest.mark.parametrize("api", ["chat", "responses", "messages", "gemini"])
async def test_before_its_first_byte_another_gives_it(tmp_path: Path, api: str, kind: str) -> None:
    names = THINKING if kind == "thinks" else tuple(PLACES)
    cases = drawn(api, names, names)
    fields: Json = THINK[api] if kind == "thinks" else {"tools": kind}
    async with gateway(tmp_path, cases) as (running, vendors):
        answers = await each_told(running, vendors, cases, "fail: 500 at {first}", **fields)
        assert wrong(answers) == []
        assert refused_of(vendors) == []


@pytest.mark.parametrize("kind", ["none", "full", "thinks"])
@pytest.mark.parametrize("api", ["chat", "responses", "messages", "gemini"])
async def test_an_answer_that_is_not_streamed_is_given_anew(tmp_path: Path, api: str, kind: str) -> None:
    names = THINKING if kind == "thinks" else tuple(PLACES)
    cases = drawn(api, names, names)
    fields: Json = THINK[api] if kind == "thinks" else {"tools": kind}
    few = asyncio.Semaphore(AT_ONCE)
    path = PATHS[api].replace(":streamGenerateContent?alt=sse", ":generateContent")
    async with gateway(tmp_path, cases) as (running, vendors):

        async def ask(number: int, case: Case) -> None:
            body = asked(case, f"cut: now at {PLACES[case.first].model}", vendors, **fields)
            model = f"m{number}"
            sent = body if api == "gemini" else {**body, "model": model}
            async with few, running.post(sent, path=path.format(model=model)) as response:
                came = await response.text()
                assert (response.status, texts_of(json.loads(came), api)) == (200, WHOLE), (case, came)

        await asyncio.gather(*(ask(number, case) for number, case in enumerate(cases)))
        assert refused_of(vendors) == []


@pytest.mark.parametrize("history", ["plain", "tools"])
async def test_the_clients_own_prefix_is_gone_on_with(tmp_path: Path, history: str) -> None:
    own, then = "The quick brown", ("mistral", "deepseek", "vllm", "vllm-gemma")
    pairs = [pair for pair in itertools.product(("mistral", "deepseek"), then) if pair[0] != pair[1]]
    cases = [Case("chat", *pair, history) for pair in pairs]
    async with gateway(tmp_path, cases, takeover="always") as (running, vendors):
        for number, case in enumerate(cases):
            body = asked(case, f"cut: now at {PLACES[case.first].model}", vendors)
            body["messages"].append({"role": "assistant", "content": own, "prefix": True})
            text, is_whole, came = await told(running, f"m{number}", "chat", body)
            rest = WHOLE if case.first == "mistral" else WHOLE.removeprefix(own)
            assert (text, is_whole) == (rest, True), (case, came)
        assert refused_of(vendors) == []
