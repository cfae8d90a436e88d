"""Races for the first valid tool call, in virtual time: ``python -m benchmarks.valid``.

A fleet of three answers each call with one tool call. Of ``quick``'s some are broken: cut off, of a tool that was not
offered, or against the schema. Each call's draws are the same for all policies. What the client has is checked here
again, by the standard library and jsonschema, and not by the gateway's own judgement.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Iterator, Sequence
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
RETRIES = 2  # of a client that checks the answer itself, as SDKs' default
TOKEN_CHARS = 4
FIRST_S = {"quick": 0.25, "steady": 0.45, "spare": 0.6}  # medians of the time to the first token
TOK_S = {"quick": 90.0, "steady": 70.0, "spare": 60.0}
BROKEN_ELSEWHERE = 0.005


class Draw(msgspec.Struct):
    """How one deployment answers one request."""

    first_s: float
    tok_s: float
    tool: str
    arguments: str


class Figures(msgspec.Struct):
    """What one policy did with all calls."""

    wrong: int = 0  # answers that the client cannot use
    errors: int = 0
    first_was_invalid: int = 0
    known: int = 0  # calls of which that is known
    seconds: list[float] = []
    usd: float = 0.0


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


def timetable(name: str, draws: Sequence[Draw]) -> Timetable:
    """Return an upstream that answers its requests with ``draws``, in their order."""
    return Timetable(name, *(list(_steps(draw)) for draw in draws))


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


def one_race(draws: dict[str, list[Draw]], win_on: WinOn, skip: int = 0) -> tuple[CallRecord, bytes | None]:
    """Race the first two, with the third to be asked after them; return the record and the stream, if there is one.

    ``skip`` so many draws: it is a retry.
    """
    sink = RememberingSink()
    track = Track(
        *(timetable(name, each[skip:]) for name, each in draws.items()),
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


def asked_once(win_on: WinOn) -> Callable[[dict[str, list[Draw]], Figures], None]:
    """Return the policy of a client that takes what comes."""

    def ask(draws: dict[str, list[Draw]], figures: Figures) -> None:
        record, events = one_race(draws, win_on)
        figures.errors += events is None
        figures.wrong += events is not None and not is_right(events)
        figures.known += record.first_was_invalid is not None
        figures.first_was_invalid += bool(record.first_was_invalid)
        figures.seconds.append(record.total_ms / 1000)
        figures.usd += record.cost_usd or 0.0

    return ask


def asked_again(draws: dict[str, list[Draw]], figures: Figures) -> None:
    """Ask as a client that checks the answer and asks again if it is broken."""
    seconds, is_good = 0.0, False
    for turn in range(1 + RETRIES):
        record, events = one_race(draws, WinOn.ANY, skip=turn)
        seconds += record.total_ms / 1000
        figures.usd += record.cost_usd or 0.0
        if is_good := events is not None and is_right(events):
            break
    figures.wrong += not is_good
    figures.seconds.append(seconds)


POLICIES = {
    "win_on: any": asked_once(WinOn.ANY),
    "win_on: any, the client asks again": asked_again,
    "win_on: valid": asked_once(WinOn.VALID),
}


def rows(calls: int, seed: int, shares: Sequence[float]) -> Iterator[str]:
    """Yield the lines of the table."""
    titles = ("broken of `quick`'s", "policy", "wrong answers", "errors", "began first and broken", "p50 s", "p95 s")
    yield f"| {' | '.join((*titles, '$ per 1,000'))} |"
    yield "|--:|---|--:|--:|--:|--:|--:|--:|"
    for share in shares:
        dice = Random(seed)
        broken = {"quick": share, "steady": BROKEN_ELSEWHERE, "spare": BROKEN_ELSEWHERE}
        all_draws = [
            {name: [drawn(dice, name, broken[name]) for _ in range(1 + RETRIES)] for name in broken}
            for _ in range(calls)
        ]
        for name, ask in POLICIES.items():
            figures = Figures()
            for draws in all_draws:
                ask(draws, figures)
            p95_s = statistics.quantiles(figures.seconds, n=20)[-1]
            first = f"{figures.first_was_invalid} of {figures.known} known" if figures.known else ""
            yield (
                f"| {share:.0%} | {name} | {figures.wrong} | {figures.errors} | {first} "
                f"| {statistics.median(figures.seconds):.2f} | {p95_s:.2f} | {1000 * figures.usd / calls:.2f} |"
            )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.valid", description=__doc__)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=18)
    parser.add_argument("--broken", type=float, nargs="+", default=[0.0, 0.02, 0.1, 0.3])
    given = parser.parse_args()
    for row in rows(given.calls, given.seed, given.broken):
        print(row)


if __name__ == "__main__":
    main()
