"""Runs a script for one request: as an event stream, or gathered into one JSON body."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from aiohttp import web

from providers.simulator.counts import Visit
from providers.simulator.loopback import json_response
from providers.simulator.script import (
    Chunk,
    Comment,
    Delta,
    Done,
    Drop,
    ErrorEvent,
    Finish,
    Gate,
    Hang,
    Headers,
    Raw,
    Reasoning,
    RoleOnly,
    Status,
    Step,
    ToolCall,
    Usage,
)
from providers.simulator.wire import DONE, Answering, embeddings, error, event, usage


class Performance(ABC):
    """The steps that do not depend on the form of the answer: waiting, refusing, breaking off."""

    streams = False  # True: an error can be an event; False: it is a status

    def __init__(self, request: web.Request, visit: Visit) -> None:
        self.request = request
        self.visit = visit
        self.headers: dict[str, str] = {}

    async def play(self, script: Sequence[Step]) -> web.StreamResponse:
        """Run all steps, until one of them ends the answer."""
        for step in script:
            match step:
                case Gate(opened):
                    await opened.wait()
                case Hang():
                    await asyncio.Event().wait()
                case Drop():
                    return self._drop()
                case Status(status, body, headers):
                    return self._refuse(status, body, headers)
                case ErrorEvent(message, code) if not self.streams:
                    status = code if isinstance(code, int) else HTTPStatus.INTERNAL_SERVER_ERROR
                    return self._refuse(status, error(message, code=code), {})
                case _:
                    await self.take(step)
        return await self.end()

    @abstractmethod
    async def take(self, step: Step) -> None:
        """Add a step to the answer."""

    @abstractmethod
    async def end(self) -> web.StreamResponse:
        """Return the response after the last step."""

    def _refuse(
        self, status: int, body: Mapping[str, Any] | list[Any] | bytes | None, headers: Mapping[str, str]
    ) -> web.Response:
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            self.visit.ending = "rate_limited"
        elif status >= HTTPStatus.BAD_REQUEST:
            self.visit.ending = "errors"
        if body is None:
            body = error(f"Status {status}, as scripted.", code=status)
        return json_response(body, status=status, headers=headers)

    def _drop(self) -> web.Response:
        """Abort the connection; the returned response cannot be delivered."""
        self.visit.ending = "errors"
        if self.request.transport is not None:
            self.request.transport.abort()
        return web.Response()


class StreamedPerformance(Performance):
    """The steps as server-sent events, each written at once."""

    streams = True

    def __init__(self, request: web.Request, visit: Visit, answering: Answering, body: Mapping[str, Any]) -> None:
        super().__init__(request, visit)
        self._answering = answering
        self._usage_wanted = bool((body.get("stream_options") or {}).get("include_usage"))
        self._response = web.StreamResponse(headers={"content-type": "text/event-stream", "cache-control": "no-cache"})
        self._tokens = 0

    async def take(self, step: Step) -> None:
        """Write the step's bytes, after the response's head if they are the first."""
        if isinstance(step, Headers):
            self._response.headers.update(step.headers)
        await self._open()
        if isinstance(step, Delta | Reasoning | ToolCall) or (isinstance(step, Chunk | Raw) and step.token):
            self._tokens += 1
            self.visit.first_token_sent = True
        await self._response.write(self._render(step))

    async def end(self) -> web.StreamResponse:
        """Return the response; the server writes its end."""
        await self._open()
        return self._response

    async def _open(self) -> None:
        if not self._response.prepared:
            await self._response.prepare(self.request)

    def _render(self, step: Step) -> bytes:
        block = b""
        match step:
            case RoleOnly() | Delta() | Reasoning() | ToolCall():
                block = event(self._answering.chunk(step.delta))
            case Finish(reason):
                block = event(self._answering.chunk({}, reason))
            case Usage(prompt_tokens, completion_tokens) if self._usage_wanted:
                counted = usage(prompt_tokens, self._tokens if completion_tokens is None else completion_tokens)
                block = event(self._answering.usage_chunk(counted))
            case Chunk(data):
                block = event(data)
            case Raw(data):
                block = data
            case Comment(text):
                block = f": {text}\n\n".encode()
            case Done():
                block = DONE
            case ErrorEvent(message, code):
                self.visit.ending = "errors"
                block = event(error(message, code=code))
        return block


class WholePerformance(Performance):
    """The steps' tokens in one JSON body, without comments and raw bytes."""

    def __init__(self, request: web.Request, visit: Visit, answering: Answering) -> None:
        super().__init__(request, visit)
        self._answering = answering
        self._message: dict[str, Any] = {"role": "assistant", "content": ""}
        self._finish = Finish()
        self._usage = Usage()
        self._tokens = 0

    async def take(self, step: Step) -> None:
        """Add a step to the body."""
        match step:
            case Delta() | Reasoning():
                for field, text in step.delta.items():
                    self._message[field] = self._message.get(field, "") + text
                self._tokens += 1
            case ToolCall():
                self._add_tool_call(step)
                self._tokens += 1
            case Finish():
                self._finish = step
            case Usage():
                self._usage = step
            case Headers(headers):
                self.headers.update(headers)

    async def end(self) -> web.StreamResponse:
        """Return the whole answer."""
        reported = self._usage.completion_tokens
        counted = usage(self._usage.prompt_tokens, self._tokens if reported is None else reported)
        whole = self._answering.whole(self._message, self._finish.reason, counted)
        return json_response(whole, headers=self.headers)

    def _add_tool_call(self, step: ToolCall) -> None:
        """Begin a tool call if the step has a name, otherwise continue the last one."""
        calls = self._message.setdefault("tool_calls", [])
        if step.name is not None or not calls:
            function = {"name": step.name, "arguments": step.arguments}
            calls.append({"id": step.id or "call_1", "type": "function", "function": function})
        else:
            calls[-1]["function"]["arguments"] += step.arguments


class EmbeddingPerformance(Performance):
    """The steps that wait, refuse or break off; then the requested embeddings."""

    def __init__(self, request: web.Request, visit: Visit, body: Mapping[str, Any]) -> None:
        super().__init__(request, visit)
        self._body = body

    async def take(self, step: Step) -> None:
        """Apply headers; steps of a chat are ignored."""
        if isinstance(step, Headers):
            self.headers.update(step.headers)

    async def end(self) -> web.StreamResponse:
        """Return a vector for each input."""
        answer = embeddings(self._body.get("model", ""), self._body.get("input", ""))
        return json_response(answer, headers=self.headers)
