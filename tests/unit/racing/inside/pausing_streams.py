"""Streams that stand still: how often the rule notices a healthy one, and how soon one that will never go on.

Deployments stream text with the pauses that are described of real ones (``FLEET`` says where), twenty at a time.
The gateway's own rule sees each pause; where it notices one, a rival has the next text 1.2 s later, so a pause that
ends before that still ends with the first one's own text. One stream in 300 stops for good, at a random moment within
its text. Of ``CHANGES`` the deployment changes after 1,000 streams.
"""

import heapq
import random
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from math import inf

from gateway.racing import Pauses
from gateway.racing.timeouts import FEWEST, LATEST, LONG_S, DeltaKind

RIVAL_S = 1.2  # from the notice to the rival's first text
TOGETHER = 20
STOPS = 1 / 300
Text = list[tuple[float, float]]  # of a stream: seconds of text, and of the pause after it


# Streams, as their providers and users describe them.


def _text(dice: random.Random, pauses: float, pause_s: Callable[[], float]) -> Text:
    """Return 5 to 40 s of text with this mean number of pauses."""
    left_s = dice.uniform(5.0, 40.0)
    rate = pauses / left_s if pauses else 1e-9
    found: Text = []
    while (run_s := dice.expovariate(rate)) < left_s:
        found.append((run_s, pause_s()))
        left_s -= run_s
    return [*found, (left_s, 0.0)]


def steady(dice: random.Random) -> Text:
    """Return a stream with a pause in one of twenty, mostly under a second."""
    return _text(dice, 0.05, lambda: dice.lognormvariate(-0.7, 0.7))


def prefilled(dice: random.Random) -> Text:
    """Return a stream that waits for other calls' long prompts."""
    return _text(dice, 2.0, lambda: dice.lognormvariate(-0.6, 0.5))


def preempted(dice: random.Random) -> Text:
    """Return a stream that in one of fifty cases is put aside, and computed again."""
    return _text(dice, 0.02, lambda: dice.uniform(1.0, 6.0))


def filtered(dice: random.Random) -> Text:
    """Return a stream that comes in the pieces that a content filter has read."""
    return [(0.0, dice.lognormvariate(0.0, 0.35)) for _ in range(dice.randint(4, 30))] + [(0.1, 0.0)]


def before_a_tool(dice: random.Random) -> Text:
    """Return a stream that in four of five cases pauses before its last text."""
    last = [(0.5, dice.gauss(2.3, 0.25))] if dice.random() < 0.8 else []
    return [*_text(dice, 0.05, lambda: dice.lognormvariate(-0.7, 0.7)), *last, (0.2, 0.0)]


def blocked(dice: random.Random) -> Text:
    """Return a stream that stands still for 5 to 8 s every few rows."""
    return [(dice.uniform(2.0, 6.0), dice.uniform(5.0, 8.0)) for _ in range(dice.randint(1, 4))] + [(1.0, 0.0)]


def buffered(dice: random.Random) -> Text:
    """Return a stream that a proxy sends on by the paragraph."""
    return [(0.0, dice.uniform(3.0, 6.0)) for _ in range(dice.randint(2, 8))] + [(0.1, 0.0)]


FLEET: Mapping[str, tuple[int, Callable[[random.Random], Text], str]] = {  # deployments, streams, where described
    "steady": (8, steady, "arize.com, What Is Inter-Token Latency"),
    "waits for prompts of others": (2, prefilled, "vLLM, Optimization and tuning: chunked prefill"),
    "preempted at times": (2, preempted, "vLLM, Optimization and tuning: preemption"),
    "read by a content filter": (2, filtered, "Azure OpenAI, Content streaming"),
    "pauses before a tool's call": (2, before_a_tool, "google/adk-python #5690"),
    "stands still for 5 to 8 s": (1, blocked, "ikawrakow/ik_llama.cpp #464"),
    "a paragraph at a time": (1, buffered, "BerriAI/litellm #1148"),
}


# The rule of the gateway, on streams that run at the same time.


class Found:
    """What the rule made of one deployment's streams."""

    def __init__(self) -> None:
        self.streams = 0
        self.false: list[int] = []  # numbers of healthy streams that were noticed
        self.noticed_s: list[tuple[int, float]] = []  # of those that stopped for good: number, and after how long


class Deployment:
    """One deployment's streams under the rule, in virtual time."""

    def __init__(self, text: Callable[[random.Random, int], Text], dice: random.Random) -> None:
        """``text`` takes the number of a stream, too."""
        self.found = Found()
        self._text = text
        self._dice = dice
        self._pauses = Pauses()
        self._now = 0.0

    def run(self, number: int) -> Found:
        """Send ``number`` streams, ``TOGETHER`` at a time; return what the rule made of them."""
        begun, due = 0, list[tuple[float, int, Iterator[None]]]()
        while due or begun < number:
            while len(due) < TOGETHER and begun < number:
                heapq.heappush(due, (self._now, begun, self._stream(begun)))
                begun += 1
            self._now, this, running = heapq.heappop(due)
            if next(running, self) is self:
                self.found.streams += 1
            else:
                heapq.heappush(due, (self._now, this, running))
        return self.found

    def _stream(self, number: int) -> Iterator[None]:
        """Send a stream; yield whenever time passes."""
        text, dice = self._text(self._dice, number), self._dice
        if dice.random() < STOPS:
            at = dice.randrange(len(text))
            text = [*text[:at], (dice.uniform(0.0, text[at][0]), inf)]
        noticed = False
        for run_s, pause_s in text:
            self._now += run_s
            yield
            limit_s = yield from self._silence(pause_s)
            if limit_s < pause_s and not noticed:
                noticed = True
                self._pauses.noticed(limit_s)
                if pause_s == inf:
                    self.found.noticed_s.append((number, limit_s))
                else:
                    self.found.false.append(number)
                if pause_s > limit_s + RIVAL_S:
                    return
            self._now += max(0.0, pause_s - limit_s)
            yield
            if pause_s > LONG_S:
                self._pauses.recovered(DeltaKind.TEXT, pause_s)
        self._pauses.streams += 1

    def _silence(self, pause_s: float) -> Generator[None, None, float]:
        """Wait for the end of a pause, or until it is noticed; return how long it was waited for."""
        waited_s = 0.0
        while waited_s < (until_s := min(pause_s, self._pauses.noticed_s(DeltaKind.TEXT))):
            self._now += until_s - waited_s
            waited_s = until_s
            yield  # the streams beside it may change how long it is waited for
        return waited_s


def fleet(streams: int, seed: int) -> Mapping[str, Found]:
    """Return what the rule made of each kind of deployment, with about ``streams`` streams in all."""
    each = streams // sum(number for number, _, _ in FLEET.values())
    return {
        name: together(
            {
                str(one): Deployment(alike(text), random.Random(f"{name} {one} {seed}")).run(each)
                for one in range(number)
            }
        )
        for name, (number, text, _) in FLEET.items()
    }


def alike(text: Callable[[random.Random], Text]) -> Callable[[random.Random, int], Text]:
    """Return streams that never change."""
    return lambda dice, _: text(dice)


# A deployment that changes.

BEFORE = 1_000


def slower(times: float) -> Callable[[random.Random, int], Text]:
    """Return streams whose pauses are ``times`` as long from one moment on."""

    def text(dice: random.Random, number: int) -> Text:
        factor = times if number >= BEFORE else 1.0
        return [(run_s, pause_s * factor) for run_s, pause_s in before_a_tool(dice)]

    return text


def turned(after: Callable[[random.Random], Text]) -> Callable[[random.Random, int], Text]:
    """Return steady streams that become others."""
    return lambda dice, number: (after if number >= BEFORE else steady)(dice)


CHANGES: Mapping[str, Callable[[random.Random, int], Text]] = {
    "three times slower": slower(3.0),
    "ten times slower": slower(10.0),
    "a content filter before it": turned(filtered),
    "a proxy before it": turned(buffered),
    "stands still for 5 to 8 s": turned(blocked),
}


def changes(seed: int, runs: int = 20) -> Mapping[str, tuple[float, int, float]]:
    """Return for each change the false notices in the 100 streams after it, mean and most, and in the next 1,000."""
    results = {}
    for name, streams in CHANGES.items():
        first, later = [], 0
        for number in range(runs):
            found = Deployment(streams, random.Random(f"{name} {number} {seed}")).run(BEFORE + 1_100)
            first.append(sum(BEFORE <= each < BEFORE + 100 for each in found.false))
            later += sum(each >= BEFORE + 100 for each in found.false)
        results[name] = sum(first) / runs, max(first), later / runs
    return results


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile of ``values``, which are not empty."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def known_s(found: Found) -> list[float]:
    """Return after how long stopped streams were noticed, once ``LATEST`` streams were known."""
    return [seconds for number, seconds in found.noticed_s if number >= LATEST + TOGETHER]


def unknown_s(found: Found) -> list[float]:
    """Return the same, while fewer than ``FEWEST`` streams were known."""
    return [seconds for number, seconds in found.noticed_s if number < FEWEST]


def together(results: Mapping[str, Found]) -> Found:
    """Return the results of all as one."""
    found = Found()
    for each in results.values():
        found.streams += each.streams
        found.false += each.false
        found.noticed_s += each.noticed_s
    return found
