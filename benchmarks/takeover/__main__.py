"""Whether answers that break are finished without a wrong character: whole gateways, scripted providers.

    python -m benchmarks.takeover [--calls 1000] [--seed 1] [--json]

Each call's answer breaks at a random character, in one of several ways. Two others may go on, each of which repeats the
last word, does so without the space before it, does not repeat it, restarts, or answers with reasoning. An answer is
whole if its client has every character once; wrong if it has any that the first provider would not have sent. The calls
are of all four APIs in turn, and all may be taken over.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog
from rich.console import Console
from rich.progress import track

from benchmarks.harness.report import grid
from gateway.ledger import migrate
from gateway.racing.takeover import split
from providers import events
from providers.simulator.script import Drop, ErrorEvent, Gate, Raw, Reasoning, RoleOnly, Step
from tests.app.gateway.broken_answers import BODIES, ENDS, SAYS, WAYS, completion, text_in
from tests.app.gateway.running_gateway import MODEL, RunningGateway, serving
from tests.app.gateway.test_dialects import event

WORDS = (
    *("The", "lazy", "dog's", "owner,", "42", "of", "them:", "über-große", "猫", "—", "said", "(twice)", "that"),
    *("“it”", "costs", "$3.14\nand\n\nno", "more;", "OK?", "Yes.", "a", "I"),
)
CONTINUES = ("repeats", "trims")
HABITS = (*CONTINUES, "no tail", "again", "reasoning")
PATHS = {"chat": "chat/completions", "completions": "completions", "messages": "messages", "responses": "responses"}
NAMES = ("first", "second", "third")
BREAKS: dict[str, Sequence[Step]] = {"reset": [Drop()], "error": [ErrorEvent()], "end": []}
BATCH = 100  # calls of one gateway, which a test may keep for seconds only
Found = Counter[tuple[str, str, str]]  # by API, who may go on, and how it ended
THOUGHT = "Let me see."


def main() -> None:
    """Break answers, and print what became of them."""
    words = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.takeover", description=__doc__, formatter_class=words)
    parser.add_argument("--calls", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    found = asyncio.run(_measure(options.calls, random.Random(options.seed)))
    if options.json:
        rows = [{"api": api, "can": can, "end": end, "n": n} for (api, can, end), n in found.items()]
        sys.stdout.write(json.dumps(rows) + "\n")
    else:
        _show(found)


async def _measure(calls: int, dice: random.Random) -> Found:
    found: Found = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for number, api in enumerate(PATHS):
            place = Path(folder) / api
            place.mkdir()
            await migrate(f"sqlite:///{place}/holeshot.db")
            deployments = [{"deployment": f"{name}/m", **_declared(api)} for name in NAMES]
            config: dict[str, Any] = {
                "providers": {name: {"apis": [api]} for name in NAMES},
                "models": {MODEL: {"race": {"mode": "single"}, "takeover": True, "deployments": deployments}},
            }
            share = (calls + number) // len(PATHS)
            for at in track(range(0, share, BATCH), f"breaking answers of {api}", console=Console(stderr=True)):
                async with serving(place, dict.fromkeys(NAMES), key="unused", **config) as running:
                    for _ in range(min(BATCH, share - at)):
                        habits = dice.choices(HABITS, k=2)
                        can = "one of two continues" if set(habits) & set(CONTINUES) else "neither continues"
                        found[api, can, await _one(running, api, dice, habits)] += 1
    return found


def _declared(api: str) -> dict[str, str]:
    way = WAYS[api]
    return {} if way is None else {"continues": way}


async def _one(running: RunningGateway, api: str, dice: random.Random, habits: Sequence[str]) -> str:
    """Return how one call ended: whole, told (the client has the beginning, and an error), or wrong."""
    answer = " ".join(_words(dice, dice.randint(4, 60)))
    delivered = answer[: dice.randint(1, len(answer) - 1)]
    seen = asyncio.Event()
    breaks = BREAKS[dice.choice(list(BREAKS))]
    running["first"].script = [*SAYS[api](_pieces(delivered, dice)), Gate(seen), *breaks]
    for name, habit in zip(("second", "third"), habits, strict=True):
        running[name].script = _continuation(api, answer, delivered, habit, dice)
    text, is_whole = await _told(running, api, seen)
    if is_whole:
        return "whole" if text == answer else "wrong"
    return "told" if text == delivered else "wrong"


def _words(dice: random.Random, number: int) -> list[str]:
    """Return words of which none follows itself: whether "no no" was said once or twice nobody can tell at a seam."""
    words = [dice.choice(WORDS)]
    while len(words) < number:
        words.append(dice.choice([word for word in WORDS if word != words[-1]]))
    return words


def _continuation(api: str, answer: str, delivered: str, habit: str, dice: random.Random) -> list[Step]:
    prefix, tail = split(delivered)
    rest = answer[len(prefix) :]
    match habit:
        case "trims":
            rest = rest.lstrip()
        case "no tail":
            rest = rest[len(tail) :]
        case "again":
            rest = "Certainly! " + answer
        case _:
            pass
    said = SAYS[api](_pieces(rest, dice))
    return [*(_thinking(api) if habit == "reasoning" else []), *said, *ENDS[api]()]


def _thinking(api: str) -> list[Step]:
    """Return the beginning of an answer with reasoning, which completions do not have: there it begins again."""
    match api:
        case "chat":
            return [RoleOnly(), Reasoning(THOUGHT)]
        case "messages":
            block = {"type": "thinking", "thinking": THOUGHT, "signature": ""}
            return [Raw(event("content_block_start", index=0, content_block=block), token=True)]
        case "responses":
            return [Raw(event("response.reasoning_text.delta", item_id="rs_1", delta=THOUGHT), token=True)]
    return completion([THOUGHT])


def _pieces(text: str, dice: random.Random) -> list[str]:
    found: list[str] = []
    while text or not found:
        size = dice.randint(1, 8)
        found.append(text[:size])
        text = text[size:]
    return found


async def _told(running: RunningGateway, api: str, seen: asyncio.Event) -> tuple[str, bool]:
    body = {"model": MODEL, "stream": True, **BODIES[PATHS[api]], "provider": {"order": list(NAMES)}}
    async with running.post(body, path=f"/v1/{PATHS[api]}") as response:
        came = await response.content.readany()
        seen.set()
        came += await response.read()
    data = [each.data.strip() for each in events(came)]
    said: list[dict[str, Any]] = [json.loads(each) for each in data if each.startswith(b"{")]
    is_whole = data[-1] == b"[DONE]" or said[-1].get("type") in {"message_stop", "response.completed"}
    return text_in(said), is_whole


def _show(found: Found) -> None:
    ends = ("whole", "told", "wrong")
    table = grid("answers that broke", ("API", "who may go on", "answers", *ends), (), words=2)
    for api in PATHS:
        for can in ("one of two continues", "neither continues"):
            n = sum(count for (*each, _), count in found.items() if each == [api, can])
            counts = [f"{found[api, can, end]:,} ({found[api, can, end] / max(n, 1):.1%})" for end in ends]
            table.add_row(api, can, f"{n:,}", *counts)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
