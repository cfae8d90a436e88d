"""The calls of a soak, drawn from the seed and their numbers; how each may end, and how it did for its client."""

import asyncio
import re
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from random import Random
from typing import Any

import aiohttp
import msgspec

from benchmarks.soak.provider import MEDIAN_S, NOWHERE, text_of, vector_of
from tests.support.measured.gateways import HEADERS

LEAVE_WITHIN_S = 0.15  # about as long as a call takes: before its headers, in mid-answer, or just too late
EVERYWHERE_SHARE = 0.2  # of the faults are met at every provider, so that nobody can answer
PATIENCE_S = 30.0  # far above what the gateway's clocks add up to
_OUT = re.compile(r"(\w+)/m: not asked, (?:cooling|open|half-open)")  # how the gateway says that a provider is out
_SAID_BYTES = 300  # of an answer that is not as it must be, for the report


class Fault(StrEnum):
    """What a call meets at the first provider that is asked, or at each of them."""

    REFUSED = "refused"  # nobody listens
    RESET = "reset"  # the connection is reset in place of headers
    HANG = "hang"  # nothing is ever sent
    LIMITED = "limited"  # 429
    FAILS = "fails"  # 500
    GARBAGE = "garbage"  # bytes that are no HTTP
    BROKEN = "broken"  # the connection is reset in mid-answer
    STALL = "stall"  # the answer stops in the middle, and nothing more comes
    GARBLED = "garbled"  # an event of the answer is no JSON
    ENDS_EARLY = "ends_early"  # the answer ends in order, in the middle
    LEAVES = "leaves"  # the client hangs up at a random instant


BEFORE_ANSWER = frozenset({Fault.REFUSED, Fault.RESET, Fault.HANG, Fault.LIMITED, Fault.FAILS, Fault.GARBAGE})
AT_ONE = frozenset({Fault.LIMITED})  # never everywhere: all would cool, and calls without a fault find nobody
NOT_OF_EMBEDDINGS = frozenset({Fault.REFUSED, Fault.GARBLED})  # they have no preferences, and no events


class Kind(msgspec.Struct, frozen=True):
    """A way of asking. ``model`` is one of the gateway's, named for how it asks its providers."""

    model: str
    streamed: bool = False

    @property
    def is_relayed(self) -> bool:
        """Whether it is for vectors, which are not raced."""
        return self.model == "relayed"


KINDS: Sequence[Kind] = (
    *(Kind(model, streamed) for model in ("raced", "hedged", "single") for streamed in (True, False)),
    Kind("relayed"),
)


class Job(msgspec.Struct, frozen=True):
    """One call. ``leave_s``: so long after its start its client hangs up."""

    number: int
    kind: Kind
    fault: Fault | None = None
    is_everywhere: bool = False
    leave_s: float | None = None

    @property
    def prompt(self) -> str:
        """What providers are told by it; see ``provider``."""
        played = "none" if self.fault in {None, Fault.REFUSED, Fault.LEAVES} else self.fault
        return f"soak {self.number} {played} {'everywhere' if self.is_everywhere else 'once'}"

    @property
    def request_id(self) -> str:
        return f"soak-{self.number}"


def drawn(seed: int, number: int, share: float) -> Job:
    """Return a call; with probability ``share`` it meets a fault."""
    random = Random(f"{seed} {number}")
    kind = random.choice(KINDS)
    if random.random() >= share:
        return Job(number, kind)
    fault = random.choice([each for each in Fault if not (kind.is_relayed and each in NOT_OF_EMBEDDINGS)])
    if fault is Fault.LEAVES:
        return Job(number, kind, fault, leave_s=random.uniform(0, LEAVE_WITHIN_S))
    return Job(number, kind, fault, is_everywhere=fault not in AT_ONE and random.random() < EVERYWHERE_SHARE)


class Ending(StrEnum):
    """What became of a call, as its client saw it."""

    ANSWERED = "answered"  # whole, and its own
    TOLD = "told"  # an error as the API has it, as a body or as the last event
    TURNED_AWAY = "turned away"  # an error which says that a provider was not asked, being out since it failed others
    CUT = "cut"  # the connection ended before the answer did, which every client notices
    LEFT = "left"  # by the client
    WRONG = "wrong"  # incomplete, somebody else's, or neither answer nor error, and nothing shows it
    LATE = "late"  # there was no end


def allowed(job: Job) -> AbstractSet[Ending]:
    """Return how a call may end."""
    match job.fault:
        case None:
            return {Ending.ANSWERED, Ending.TURNED_AWAY}
        case Fault.LEAVES:
            return {Ending.LEFT, Ending.ANSWERED, Ending.TURNED_AWAY}
        case Fault.GARBLED:  # an event that says nothing may be left out or passed on
            return {Ending.ANSWERED, Ending.TOLD, Ending.TURNED_AWAY}
    told = {Ending.TOLD, Ending.TURNED_AWAY}
    if job.fault not in BEFORE_ANSWER and job.kind.is_relayed:
        told |= {Ending.CUT}  # its body is on its way to the client as it arrives
    if job.is_everywhere:
        return told
    under_way = job.fault not in BEFORE_ANSWER and (job.kind.streamed or job.kind.is_relayed)
    return {Ending.ANSWERED, Ending.TURNED_AWAY, *(told if under_way else ())}


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
