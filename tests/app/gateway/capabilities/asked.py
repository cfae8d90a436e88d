"""What a client may ask for, each kind in one way, and a provider that answers all of them as a trial scripts it."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from providers.simulator import Gate, ReceivedRequest, ScriptedProvider, Step
from tests.app.gateway.broken_answers import response, response_end
from tests.app.gateway.collector import Collector
from tests.app.gateway.key_desk import bearer
from tests.app.gateway.relayed.samples import HANGS, plays, says
from tests.app.gateway.running_gateway import RunningGateway
from tests.app.gateway.watcher import Watcher

APIS = ("chat", "responses", "messages", "embeddings", "moderations", "rerank", "decisions", "audio", "images")
FIRST, SECOND = "alpha", "beta"  # the providers; each has a deployment of each model
PROMPT = "word " * 800  # about a thousand tokens
PROMPT_TOKENS, ANSWER_TOKENS = 1_000, 9
HEARD_TOKENS = 2_000  # of a transcript, and of a picture
SOUND = b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(range(64))


class Reply(msgspec.Struct, frozen=True):
    """What a client got."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Send = Callable[[RunningGateway, str, Mapping[str, str]], Awaitable[Reply]]  # the model, and headers


def _posts(path: str, **fields: Any) -> Send:
    async def send(running: RunningGateway, model: str, headers: Mapping[str, str]) -> Reply:
        async with running.post({"model": model, **fields}, path=path, headers=headers) as answer:
            return await _reply(answer)

    return send


async def _uploads(running: RunningGateway, model: str, headers: Mapping[str, str]) -> Reply:
    form = aiohttp.FormData({"model": model})
    form.add_field("file", SOUND, filename="a.wav", content_type="audio/wav")
    path = f"{running.url}/v1/audio/transcriptions"
    async with running.http.post(path, data=form, headers=headers) as answer:
        return await _reply(answer)


async def _takes_a_turn(running: RunningGateway, model: str, headers: Mapping[str, str]) -> Reply:
    """Take the only turn of a connection; its status is that of the error, if it is one."""
    async with running.http.ws_connect(f"{running.url}/v1/responses", compress=0, headers=headers) as wire:
        await wire.send_json({"type": "response.create", "model": model, "input": PROMPT, "max_output_tokens": 100})
        said = b""
        while True:
            text = await wire.receive_str()
            said += text.encode() + b"\n"
            event = msgspec.json.decode(text)
            if event["type"] == "error":
                return Reply(event.get("status", 500), event.get("headers", {}), said)
            if event["type"] in {"response.completed", "response.failed"}:
                return Reply(200, {}, said)


async def _reply(answer: aiohttp.ClientResponse) -> Reply:
    body = await answer.read()
    return Reply(answer.status, {name.lower(): value for name, value in answer.headers.items()}, body)


_MESSAGES = [{"role": "user", "content": PROMPT}]

SENDS: Mapping[str, Send] = {  # by what is asked for, as the table names it
    "streamed": _posts("/v1/chat/completions", messages=_MESSAGES, max_tokens=100, stream=True),
    "whole": _posts("/v1/chat/completions", messages=_MESSAGES, max_tokens=100),
    "background": _posts("/v1/responses", input=PROMPT, max_output_tokens=100, background=True),
    "turn": _takes_a_turn,
    "embeddings": _posts("/v1/embeddings", input=PROMPT),
    "rerank": _posts("/v1/rerank", query="horse", documents=[PROMPT]),
    "moderation": _posts("/v1/moderations", input=PROMPT),
    "decisions": _posts("/v1/decisions", input=PROMPT, questions=[{"type": "predicate", "name": "angry"}]),
    "speech": _posts("/v1/audio/speech", input=PROMPT, voice="a"),
    "transcripts": _uploads,
    "pictures": _posts("/v1/images/generations", prompt="a horse"),
    "counting": _posts("/v1/messages/count_tokens", messages=_MESSAGES),
}


# The provider's side.

TEXT, REST = ("The quick", " brown fox"), " fox jumps."  # who continues it is asked for its last word again
_TOKENS = {"prompt_tokens": PROMPT_TOKENS, "total_tokens": PROMPT_TOKENS}
_IN_AND_OUT = {"input_tokens": HEARD_TOKENS - 10, "output_tokens": 10, "total_tokens": HEARD_TOKENS}
_READ = {"input_tokens": PROMPT_TOKENS, "output_tokens": 2, "total_tokens": PROMPT_TOKENS + 2}
_QUEUED = {
    "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "queued", "background": True,
    "output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": None,
}  # fmt: skip
_WHOLE: Mapping[str, Any] = {  # by the path at the provider
    "embeddings": {
        "object": "list", "model": "m", "usage": _TOKENS,
        "data": [{"object": "embedding", "index": 0, "embedding": [1.0, 0.0]}],
    },
    "rerank": {"results": [{"index": 0, "relevance_score": 0.9}], "usage": _TOKENS},
    "moderations": {"id": "m", "model": "m", "results": [{"flagged": False}], "usage": _TOKENS},
    "decisions": {"model": "m", "answers": [{"type": "predicate", "name": "angry"}], "usage": _READ},
    "audio/transcriptions": {"text": "Hello.", "usage": {"type": "tokens", **_IN_AND_OUT}},
    "images/generations": {"created": 1, "data": [{"b64_json": "AAAA"}], "usage": _IN_AND_OUT},
    "messages/count_tokens": {"input_tokens": PROMPT_TOKENS},
}  # fmt: skip


def _chat(texts: Sequence[str], *, ends: bool = True) -> bytes:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": text} for text in texts)]
    chunks: list[dict[str, Any]] = [{**head, "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    if ends:
        chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": ANSWER_TOKENS}
        chunks.append({**head, "choices": [], "usage": {**usage, "total_tokens": sum(usage.values())}})
    written = b"".join(b"data: %b\n\n" % msgspec.json.encode(chunk) for chunk in chunks)
    return written + b"data: [DONE]\n\n" if ends else written


def _responses(texts: Sequence[str], *, ends: bool = True) -> bytes:
    return b"".join(step.data for step in [*response(texts), *(response_end() if ends else [])])  # type: ignore[union-attr] # all raw


_STREAMS = {"chat/completions": _chat, "responses": _responses}


Script = Callable[[ReceivedRequest], Sequence[Step]]


def answers(asked: ReceivedRequest) -> Sequence[Step]:
    """Give an ordinary answer, whatever is asked for."""
    path = _path(asked)
    if path == "audio/speech":
        return plays(b"sound")
    if path == "responses" and asked.body.get("background"):
        return says(_QUEUED)
    if (stream := _STREAMS.get(path)) is not None:
        return plays(stream(TEXT), kind="text/event-stream")
    return says(_WHOLE[path])


def hangs(_: ReceivedRequest) -> Sequence[Step]:
    """Never answer."""
    return HANGS


def refuses(_: ReceivedRequest) -> Sequence[Step]:
    """Refuse so that it is known that nothing was started."""
    return says({"error": {"message": "too many", "type": "rate_limit_error"}}, status=429)


def begins(*texts: str, then: Step) -> Script:
    """Send the beginning of a streamed answer; ``then`` hang, or break the connection. What is no stream: only that."""

    def begun(asked: ReceivedRequest) -> Sequence[Step]:
        if (stream := _STREAMS.get(_path(asked))) is not None:
            return plays(stream(texts, ends=False), kind="text/event-stream", then=then)
        kind = "audio/mpeg" if _path(asked) == "audio/speech" else "application/json"
        return plays(b"{", kind=kind, then=then)

    return begun


def streams(*texts: str) -> Script:
    """Answer with these texts, in what is a stream."""

    def streamed(asked: ReceivedRequest) -> Sequence[Step]:
        stream = _STREAMS.get(_path(asked))
        return answers(asked) if stream is None else plays(stream(texts), kind="text/event-stream")

    return streamed


def after(event: asyncio.Event) -> Script:
    """Wait for ``event``, then answer."""
    return lambda asked: [Gate(event), *answers(asked)]


class Provider(ScriptedProvider):
    """Plays for each model what its cell says."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: dict[str, Script] = {}  # by the model's name there; others are answered
        self.asked: dict[str, asyncio.Event] = {}  # likewise
        self.answers = self._play

    def _play(self, body: Any) -> Sequence[Step]:
        model = _model_in(body)
        self.event(model).set()
        return self.scripts.get(model, answers)(self.received[-1])

    def event(self, model: str) -> asyncio.Event:
        """Return what is set once the model was asked for something."""
        return self.asked.setdefault(model, asyncio.Event())


def _path(asked: ReceivedRequest) -> str:
    return asked.path.removeprefix("/v1/")


_FORMS_MODEL = re.compile(rb'name="model"\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]*)\r\n')


def _model_in(body: Any) -> str:
    if isinstance(body, dict):
        return str(body["model"])
    found = _FORMS_MODEL.search(body)
    assert found is not None
    return found[1].decode()


# A cell of the table: what is asked for, at a model of its own.


class Cell:
    """One kind of question, and the model at which it is asked, with a deployment at each provider."""

    def __init__(
        self,
        asked: str,
        running: RunningGateway,
        providers: Mapping[str, Provider],
        *,
        watcher: Watcher,
        collector: Collector,
        is_keyed: bool = False,
    ) -> None:
        """``is_keyed``: it asks with a key of its own; ``watcher`` and ``collector`` see the calls of all cells."""
        self.asked = asked
        self.model = asked
        self.watcher = watcher
        self.collector = collector
        self.running = running
        self._providers = providers
        self._headers = bearer(f"hs-{asked}") if is_keyed else {}

    async def ask(self, **headers: str) -> Reply:
        """Ask once. Underscores in the names of ``headers`` stand for hyphens."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return await SENDS[self.asked](self.running, self.model, {**self._headers, **sent})

    async def is_answered(self, **headers: str) -> Reply:
        """Ask once, and be answered."""
        reply = await self.ask(**headers)
        assert reply.status == 200, reply.body[:500]
        return reply

    def script(self, *, first: Script = answers, second: Script = answers) -> None:
        """Say how the providers answer."""
        self._providers[FIRST].scripts[self.model] = first
        self._providers[SECOND].scripts[self.model] = second

    def has_asked(self, provider: str) -> asyncio.Event:
        """Return what is set once the provider was asked."""
        return self._providers[provider].event(self.model)

    async def attempts(self) -> list[dict[str, Any]]:
        """Return the rows of its attempts that have ended."""
        return await self.running.rows(
            f"select * from attempts where deployment like '%/{self.model}' order by started_at, number"
        )

    async def tried(self) -> list[tuple[str, str, str]]:
        """Return provider, role and outcome of each attempt that has ended."""
        return [(row["provider"], row["role"], row["outcome"]) for row in await self.attempts()]

    async def call(self) -> dict[str, Any]:
        """Return the row of its last call."""
        return (await self.running.rows(f"select * from calls where model = '{self.model}' order by started_at"))[-1]


def other(model: str) -> str:
    """Return the fallback of a cell's model."""
    return f"{model}-other"


@asynccontextmanager
async def both_providers() -> AsyncIterator[dict[str, Provider]]:
    """Serve the two providers."""
    providers = {name: Provider() for name in (FIRST, SECOND)}
    async with providers[FIRST], providers[SECOND]:
        yield providers
