"""Races for the first valid tool call, in virtual time.

A fleet of three answers each call with one tool call. Of ``quick``'s some are broken: cut off, of a tool that was not
offered, or against the schema. What the client has is checked here again, by the standard library and jsonschema, and
not by the gateway's own judgement.
"""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import jsonschema
import msgspec

from gateway.core.attempts import Role, WinOn
from gateway.core.calls import CallRecord
from gateway.core.race_failures import NoValidAnswer
from providers import Price
from tests.unit.racing.track import DONE, RememberingSink, Step, Timetable, Track, delta, event, usage
from tests.unit.racing.virtual_time import run

TOOL = "book_table"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "restaurant": {"type": "string"},
        "guests": {"type": "integer"},
        "notes": {"type": "string"},
    },
    "required": ["restaurant", "guests", "notes"],
    "additionalProperties": False,
}
FIELDS = {"tools": [{"type": "function", "function": {"name": TOOL, "parameters": SCHEMA}}]}
PRICE = Price(input_usd=1e-6, output_usd=4e-6)
PROMPT_TOKENS = 800
TOKEN_CHARS = 4
FIRST_S = {"quick": 0.25, "steady": 0.45, "spare": 0.6}  # medians of the time to the first token
TOK_S = {"quick": 90.0, "steady": 70.0, "spare": 60.0}


class Draw(msgspec.Struct):
    """How one deployment answers one request."""

    first_s: float
    tok_s: float
    tool: str
    arguments: str


def drawn(dice: Random, name: str, broken: float) -> Draw:
    """Draw an answer of deployment ``name``, broken with this probability."""
    notes = " ".join(dice.choice(("window", "quiet", "birthday", "vegan", "late")) for _ in range(dice.randint(5, 60)))
    arguments = {"restaurant": "Chez Nous", "guests": dice.randint(1, 8), "notes": notes}
    text, tool = json.dumps(arguments), TOOL
    how = dice.choice(("cut", "tool", "schema"))
    if dice.random() < broken:
        if how == "cut":
            text = text[: dice.randint(1, len(text) - 1)]
        elif how == "tool":
            tool = "bookTable"
        else:
            text = json.dumps({**arguments, "guests": "four"})
    first_s = FIRST_S[name] * dice.lognormvariate(0.0, 0.35)
    return Draw(first_s, TOK_S[name] * dice.lognormvariate(0.0, 0.15), tool, text)


def timetable(name: str, draw: Draw) -> Timetable:
    """Return an upstream that answers with ``draw``."""
    return Timetable(name, list(_steps(draw)))


def _steps(draw: Draw) -> Iterator[tuple[float, Step]]:
    at, pieces = draw.first_s, range(0, len(draw.arguments), TOKEN_CHARS)
    yield at, _called({"index": 0, "id": "t", "function": {"name": draw.tool, "arguments": ""}})
    for begin in pieces:
        at += 1 / draw.tok_s
        yield at, _called({"index": 0, "function": {"arguments": draw.arguments[begin : begin + TOKEN_CHARS]}})
    end = {"index": 0, "delta": {}, "finish_reason": "tool_calls"}
    yield at, event(id="c1", object="chat.completion.chunk", model="m", choices=[end])
    yield at, usage(PROMPT_TOKENS, len(pieces) + 1)
    yield at, DONE
    yield at, None


def _called(call: dict[str, Any]) -> bytes:
    return delta(tool_calls=[call])


def is_right(events: bytes) -> bool:
    """Whether a client can use this stream: one call of the tool, with arguments that match its schema."""
    name, arguments = None, ""
    for line in events.decode().splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                for call in choice["delta"].get("tool_calls", ()):
                    name = call["function"].get("name", name)
                    arguments += call["function"]["arguments"]
    try:
        jsonschema.validate(json.loads(arguments), SCHEMA)
    except (ValueError, jsonschema.ValidationError):
        return False
    return name == TOOL


def one_race(draws: dict[str, Draw], win_on: WinOn) -> tuple[CallRecord, bytes | None]:
    """Race the first two, with the third to be asked after them; return the record and the stream, if there is one."""
    sink = RememberingSink()
    track = Track(
        *(timetable(name, each) for name, each in draws.items()),
        launches=[("quick", 0.0, Role.PRIMARY), ("steady", 0.0, Role.RACE)],
        rest=["spare"],
        win_on=win_on,
        fields=FIELDS,
        sink=sink,
        price=PRICE,
        permits=2,
    )
    try:
        return run(track.run()), sink.bytes
    except NoValidAnswer:
        return track.recorder.records[0], None
