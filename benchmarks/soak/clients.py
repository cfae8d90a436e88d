"""Clients of the gateway: they make calls, look closely at each answer, and say how it ended."""

import asyncio
import re
import time
from typing import Any

import aiohttp
import msgspec

from benchmarks.harness.gateways import HEADERS
from benchmarks.soak.jobs import Ending, Fault, Job
from benchmarks.soak.provider import MEDIAN_S, NOWHERE, text_of, vector_of

PATIENCE_S = 30.0  # far above what the gateway's clocks add up to
_OUT = re.compile(r"(\w+)/m: not asked, (?:cooling|open|half-open)")  # how the gateway says that a provider is out
_SAID_BYTES = 300  # of an answer that is not as it must be, for the report


class Made(msgspec.Struct, frozen=True):
    """A call that was made. ``said``: what there was of an answer that is wrong; ``status``: None before headers."""

    job: Job
    ending: Ending
    seconds: float
    status: int | None = None
    said: str = ""


async def make(session: aiohttp.ClientSession, port: int, job: Job) -> Made:
    """Make a call, and return how it ended."""
    path, body = asked(job)
    began = time.monotonic()
    status: int | None = None
    received = bytearray()
    headers = {**HEADERS, "content-type": "application/json", "x-request-id": job.request_id}
    patience_s = PATIENCE_S if job.leave_s is None else job.leave_s
    try:
        async with (
            asyncio.timeout(patience_s),
            session.post(f"http://127.0.0.1:{port}{path}", data=msgspec.json.encode(body), headers=headers) as response,
        ):
            status = response.status
            async for data in response.content.iter_any():
                received += data
            ending = judged(job, status, bytes(received))
    except TimeoutError:
        ending = Ending.LATE if job.leave_s is None else Ending.LEFT
    except aiohttp.ClientError:
        ending = Ending.CUT
    said = "" if ending in {Ending.ANSWERED, Ending.LEFT} else received[-_SAID_BYTES:].decode(errors="replace")
    return Made(job, ending, time.monotonic() - began, status, said)


def asked(job: Job) -> tuple[str, dict[str, Any]]:
    """Return the path and the body of a call."""
    if job.kind.is_relayed:
        return "/v1/embeddings", {"model": job.kind.model, "input": job.prompt, "encoding_format": "float"}
    body: dict[str, Any] = {
        "model": job.kind.model,
        "stream": job.kind.streamed,
        "messages": [{"role": "user", "content": job.prompt}],
    }
    if job.fault is Fault.REFUSED:
        body["provider"] = {"only" if job.is_everywhere else "order": [NOWHERE]}
    return "/v1/chat/completions", body


def judged(job: Job, status: int, body: bytes) -> Ending:
    """Return how a call ended whose answer came to an end."""
    try:
        if status != 200:
            return _of_error(msgspec.json.decode(body)) if status >= 400 else Ending.WRONG
        if job.kind.is_relayed:
            return _ending(msgspec.json.decode(body)["data"][0]["embedding"] == vector_of(job.number))
        if job.kind.streamed:
            return _of_stream(job, body)
        message = msgspec.json.decode(body)["choices"][0]
        return _ending(message["finish_reason"] == "stop" and _is_own(job, message["message"]["content"]))
    except (msgspec.DecodeError, LookupError, TypeError):
        return Ending.WRONG


def _of_stream(job: Job, body: bytes) -> Ending:
    text, reason = "", None
    *events, last = body.split(b"\n\n")
    if last:
        return Ending.WRONG  # the middle of an event
    for event in events:
        data = event.removeprefix(b"data: ")
        if data == b"[DONE]" or event.startswith(b":"):
            continue
        try:
            chunk = msgspec.json.decode(data)
        except msgspec.DecodeError:
            if job.fault is Fault.GARBLED:
                continue  # as its provider sent it
            raise
        if "error" in chunk:
            return _of_error(chunk)
        for choice in chunk["choices"]:
            text += choice["delta"].get("content") or ""
            reason = choice.get("finish_reason") or reason
    return _ending(reason == "stop" and events[-1:] == [b"data: [DONE]"] and _is_own(job, text))


def _is_own(job: Job, text: str) -> bool:
    return any(text == text_of(provider, job.number) for provider in MEDIAN_S)


def _of_error(body: Any) -> Ending:
    said = body["error"]["message"]
    if not said:
        return Ending.WRONG
    return Ending.TURNED_AWAY if set(_OUT.findall(said)) - {NOWHERE} else Ending.TOLD


def _ending(is_whole: bool) -> Ending:
    return Ending.ANSWERED if is_whole else Ending.WRONG
