"""Whether answers that break are finished without a wrong character: whole gateways, scripted providers.

    python -m benchmarks.takeover [--calls 1000] [--seed 1] [--json]

Each call's answer breaks at a random character: by a reset, an error, an end without its last event, or silence. It is
prose, a language without spaces, emoji, code, JSON, words that follow themselves, or prose after thoughts. Two others
may go on. Each is a model of its own: from the text that its request begins the answer with, it says one continuation,
always the same. What it does is its *habit*: it goes on as the first would have, with the space before its first word
trimmed, after all that it was sent, or until it breaks, too; or it goes on otherwise later, chooses another word at
once, leaves one out, begins again, thinks first, or refuses.

An answer is *whole* if its client has an end and, character by character, what one of these models was sent and said;
*told* if it has the beginning, and an error; *spaces* if only spaces at the seam are others; else *wrong*. The calls
are of four APIs in turn, and all may be taken over.
"""

import argparse
import asyncio
import json
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog
from rich.console import Console

from benchmarks.harness.report import grid
from benchmarks.takeover.texts import KINDS
from gateway.ledger import migrate
from providers import events
from providers.simulator.script import Drop, ErrorEvent, Gate, Hang, Raw, Reasoning, RoleOnly, Status, Step
from tests.app.gateway.broken_answers import BODIES, ENDS, SAYS, WAYS, completion, text_in
from tests.app.gateway.running_gateway import MODEL, RunningGateway, serving
from tests.app.gateway.test_dialects import event

CONTINUES = ("exactly", "trims", "otherwise later")
HABITS = (*CONTINUES, "breaks too", "another word", "leaves one out", "begins again", "thinks first", "refuses")
PATHS = {"chat": "chat/completions", "completions": "completions", "messages": "messages", "responses": "responses"}
CHAT_WAYS = ("prefix", "final_message", "repeated_prefix")  # in which a provider may be known to continue
NAMES = ("first", "second", "third")
BREAKS: dict[str, Sequence[Step]] = {"reset": [Drop()], "error": [ErrorEvent()], "end": [], "silence": [Hang()]}
STALL_S = 0.4  # of silence
WITHIN_S = 2.0  # a continuation begins; the second is asked after half of that
LANES = 4  # gateways of each API at a time: most of the time one waits for a silence to be over
BATCH = 50  # calls of one gateway, which a test may keep for seconds only
ENDINGS = ("whole", "told", "spaces", "wrong")
Found = Counter[tuple[str, str, str, str]]  # by API, kind of text, who may go on, and how it ended
THOUGHT = "Let me see."


class Spoken:
    """A model that goes on with texts: it says the same whenever it is sent the same."""

    def __init__(self, api: str, answer: str, habit: str, way: str | None, dice: random.Random) -> None:
        self.api, self.answer, self.habit, self.way = api, answer, habit, way
        self.whole: set[str] = set()  # what it was sent, and said to that
        self._dice = random.Random(dice.random())

    def script(self, body: Any) -> list[Step]:
        """Return its answer to a request."""
        begun = begun_in(body)
        said = self._says(begun)
        if begun and self.habit == "refuses":
            return [Status(400)]
        self.whole.add(begun + said)
        thinks = self.habit == "thinks first" and begun
        if self.way == "repeated_prefix" and begun:
            said = begun + said
        elif self.habit == "trims" and begun:
            said = said.lstrip()
        steps = [*(_thinking(self.api) if thinks else []), *SAYS[self.api](_pieces(said, self._dice))]
        if self.habit == "breaks too" and begun and len(steps) > 1:
            return [*steps[: self._dice.randint(1, len(steps) - 1)], *BREAKS[self._dice.choice(list(BREAKS))]]
        return [*steps, *_end(self.api)]

    def _says(self, begun: str) -> str:
        if not self.answer.startswith(begun):  # another one went on otherwise, and broke
            return " and so on."
        rest = self.answer[len(begun) :]
        match self.habit if begun else "exactly":
            case "another word":
                return " Certainly" + rest
            case "leaves one out":
                return re.sub(r"\s*\S+", "", rest, count=1)
            case "begins again":
                return "Certainly! " + self.answer
            case "otherwise later":
                return rest[: max(40, len(rest) // 2)] + " Or so."
        return rest


def begun_in(body: Any) -> str:
    """Return the text that a request begins its answer with, in any API."""
    if "prompt" in body:
        return str(body["prompt"]).removeprefix(BODIES["completions"]["prompt"])
    given = body.get("messages", body.get("input"))
    last = given[-1] if isinstance(given, list) else {}
    if last.get("role") != "assistant":
        return ""
    content = last["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def main() -> None:
    """Break answers, and print what became of them."""
    words = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.takeover", description=__doc__, formatter_class=words)
    parser.add_argument("--calls", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    found = asyncio.run(_measure(options.calls, options.seed))
    if options.json:
        names = ("api", "text", "can", "end", "n")
        sys.stdout.write(json.dumps([dict(zip(names, (*key, n), strict=True)) for key, n in found.items()]) + "\n")
    else:
        _show(found)


async def _measure(calls: int, seed: int) -> Found:
    with tempfile.TemporaryDirectory() as folder:
        lanes = [(api, Path(folder) / f"{api}{lane}") for lane in range(LANES) for api in PATHS]
        await migrate(f"sqlite:///{folder}/empty.db")
        for _, place in lanes:
            place.mkdir()
            shutil.copy(f"{folder}/empty.db", place / "holeshot.db")
        shares = [(calls + number) // len(lanes) for number in range(len(lanes))]
        found = await asyncio.gather(
            *[_of_api(api, share, place, seed) for (api, place), share in zip(lanes, shares, strict=True)]
        )
    return sum(found, Found())


async def _of_api(api: str, calls: int, place: Path, seed: int) -> Found:
    found, dice = Found(), random.Random(f"{seed} {place.name}")
    for at in range(0, calls, BATCH):
        way = dice.choice(CHAT_WAYS) if api == "chat" else WAYS[api]
        deployments = [{"deployment": f"{name}/m", **({} if way is None else {"continues": way})} for name in NAMES]
        takeover = {"when": "always", "within_s": WITHIN_S}
        config: dict[str, Any] = {
            "providers": {name: {"apis": [api]} for name in NAMES},
            "models": {MODEL: {"race": {"mode": "single"}, "takeover": takeover, "deployments": deployments}},
            "timeouts": {"stall_timeout_s": STALL_S},
        }
        async with serving(place, dict.fromkeys(NAMES), key="unused", **config) as running:
            for _ in range(min(BATCH, calls - at)):
                kind, habits = dice.choice(list(KINDS)), dice.choices(HABITS, k=2)
                can = "one of two continues" if set(habits) & set(CONTINUES) else "neither continues"
                answer = ""
                while len(answer) < 2 or not answer[0].isprintable():
                    answer = KINDS[kind](dice, dice.randint(4, 60))
                models = [Spoken(api, answer, habit, way, dice) for habit in habits]
                end = await _one(running, api, kind, models, dice)
                if end in {"spaces", "wrong"}:
                    sys.stderr.write(f"{end}: {api}, {kind}, {habits}, {way}\n")
                found[api, kind, can, end] += 1
        sys.stderr.write(f"{api}: {min(at + BATCH, calls):,} of {calls:,}\n")
    return found


async def _one(running: RunningGateway, api: str, kind: str, models: Sequence[Spoken], dice: random.Random) -> str:
    """Return how one call ended, one of ``ENDINGS``."""
    answer = models[0].answer
    delivered = answer[: dice.randint(1, len(answer) - 1)]
    seen = asyncio.Event()
    thoughts = _thinking(api) if kind == "thinks first" and api != "completions" else []
    breaks = BREAKS[dice.choice(list(BREAKS))]
    breaking = [*thoughts, *SAYS[api](_pieces(delivered, dice)), Gate(seen), *breaks]
    first = Spoken(api, answer, "exactly", models[0].way, dice)  # asked again, if another breaks
    running["first"].answers = lambda body: first.script(body) if begun_in(body) else breaking
    for name, model in zip(NAMES[1:], models, strict=True):
        running[name].answers = model.script
    text, is_whole = await _told(running, api, seen)
    rights = {answer}.union(first.whole, *[model.whole for model in models])
    if is_whole:
        if text in rights:
            return "whole"
        return "spaces" if "".join(text.split()) in {"".join(right.split()) for right in rights} else "wrong"
    begins = [right for right in rights if right.startswith(text)]
    return "told" if text.startswith(delivered) and begins else "wrong"


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


def _end(api: str) -> list[Step]:
    """Return an end by the model's own choice: one by a limit may come within the word that is said again."""
    return [Raw(each.data.replace(b'"length"', b'"stop"')) if isinstance(each, Raw) else each for each in ENDS[api]()]


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
    told: list[dict[str, Any]] = [json.loads(each) for each in data if each.startswith(b"{")]
    said = [each for each in told if "reasoning" not in each.get("type", "")]
    is_whole = data[-1] == b"[DONE]" or said[-1].get("type") in {"message_stop", "response.completed"}
    return text_in(said), is_whole


def _show(found: Found) -> None:
    by_api, by_kind = "answers that broke, by API", "the same, by kind of text"
    for title, at, names in ((by_api, 0, tuple(PATHS)), (by_kind, 1, tuple(KINDS))):
        table = grid(title, ("", "who may go on", "answers", *ENDINGS), (), words=2)
        for name in names:
            for can in ("one of two continues", "neither continues"):
                its = {key: n for key, n in found.items() if key[at] == name and key[2] == can}
                n = sum(its.values())
                counts = [sum(count for key, count in its.items() if key[3] == end) for end in ENDINGS]
                table.add_row(name, can, f"{n:,}", *[f"{each:,} ({each / max(n, 1):.1%})" for each in counts])
        Console(width=100).print(table)


if __name__ == "__main__":
    main()
