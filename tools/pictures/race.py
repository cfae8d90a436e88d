"""The moving picture of races on the site's first page: drawn from the events of real races, as an SVG.

It plays by itself, slower than the races were, and without a script. Where a reader asks for less motion it stands
still, with all races run.
"""

from collections.abc import AsyncIterator, Iterator
from html import escape
from typing import Any, Self

import aiohttp
import msgspec

RACES, WIDTH = 3, 3
SLOWER = 3.0  # times
PAUSE_S = 2.0  # after all
FADE_S = 0.25
SECONDS_PX, LEFT_PX, RIGHT_PX = 360.0, 112, 72  # a second of the axis; names; what is written behind an answer
HEAD_PX, LANE_PX, GAP_PX = 30, 24, 14
_STYLE = """
.hs-race { --ink: #1f2937; --dim: #6b7280; --wait: #c4cad3; --won: #15803d; --cut: #b91c1c; max-width: 100%;
  height: auto; font: 13px system-ui, sans-serif }
@media (prefers-color-scheme: dark) {
  .hs-race { --ink: #e5e7eb; --dim: #9ca3af; --wait: #4b5563; --won: #4ade80; --cut: #f87171 }
}
body[data-theme="dark"] .hs-race { --ink: #e5e7eb; --dim: #9ca3af; --wait: #4b5563; --won: #4ade80; --cut: #f87171 }
body[data-theme="light"] .hs-race { --ink: #1f2937; --dim: #6b7280; --wait: #c4cad3; --won: #15803d; --cut: #b91c1c }
.hs-race text { fill: var(--ink) }
.hs-race .dim { fill: var(--dim) }
.hs-race .won { fill: var(--won) }
.hs-race .cut { fill: var(--cut) }
.hs-race .wait { fill: var(--wait) }
.hs-race rect { transform-box: fill-box; transform-origin: left }
"""


class Attempt(msgspec.Struct):
    """One lane: who was asked, when its first token came, and how and when it ended, in ms since the call."""

    provider: str
    launched_ms: float
    first_ms: float | None = None
    ended_ms: float = 0.0
    outcome: str = ""


class Race(msgspec.Struct):
    """A call whose other attempts were cut when the winner's first token came."""

    attempts: dict[str, Attempt]
    first_ms: float = 0.0

    @property
    def told_in_full(self) -> bool:
        """Whether it had as many attempts as are drawn, and each was won or cut at the claim."""
        outcomes = sorted(attempt.outcome for attempt in self.attempts.values())
        return outcomes == ["lost"] * (WIDTH - 1) + ["won"]

    @property
    def winner(self) -> str:
        """The provider whose first token came first."""
        return next(attempt.provider for attempt in self.attempts.values() if attempt.outcome == "won")


async def watch(url: str) -> list[Race]:
    """Return races as they happen at the gateway at ``url``, each won by another provider than the one before."""
    running: dict[str, Race] = {}
    races: list[Race] = []
    async with aiohttp.ClientSession(url) as client, client.get("/api/live") as response:
        async for kind, event in _events(response):
            match kind:
                case "call":
                    running[event["id"]] = Race({})
                case "launch" if event["call"] in running:
                    attempt = Attempt(event["provider"].removeprefix("sim-"), event["offset_ms"])
                    running[event["call"]].attempts[event["attempt"]] = attempt
                case "first" | "end" if event["call"] in running:
                    _note(running[event["call"]].attempts[event["attempt"]], kind, event)
                case "done" if event["id"] in running:
                    race = running.pop(event["id"])
                    race.first_ms = event["ttft_ms"] or 0.0
                    if race.told_in_full and not (races and races[-1].winner == race.winner):
                        races.append(race)
                    if len(races) == RACES:
                        return races
    raise ConnectionError("the gateway ended its stream of events")


def _note(attempt: Attempt, kind: str, event: dict[str, Any]) -> None:
    if kind == "first":
        attempt.first_ms = attempt.launched_ms + event["ttft_ms"]
    else:
        attempt.ended_ms, attempt.outcome = attempt.launched_ms + event["ms"], event["outcome"]


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    kind = ""
    async for line in response.content:
        name, _, value = line.decode().strip().partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, msgspec.json.decode(value)


class Film(msgspec.Struct):
    """What moves, and when: each element has keyframes of its own over one loop of ``lasts_s`` seconds."""

    lasts_s: float
    rules: list[str]

    @classmethod
    def of(cls, races: list[Race]) -> Self:
        """Return the film in which these follow each other."""
        return cls(sum(_lasts_s(race) for race in races) + PAUSE_S, [])

    def grows(self, from_s: float, to_s: float) -> str:
        """Return the class of a bar that grows between these."""
        return self._moves("transform: scaleX(0)", "transform: none", from_s, to_s)

    def appears(self, at_s: float) -> str:
        """Return the class of what is seen from then on."""
        return self._moves("opacity: 0", "opacity: 1", at_s, at_s + FADE_S)

    def _moves(self, before: str, after: str, from_s: float, to_s: float) -> str:
        name, last = f"hs{len(self.rules)}", self.lasts_s
        frames = f"0%, {from_s / last:.2%} {{ {before} }} {to_s / last:.2%}, 100% {{ {after} }}"
        self.rules.append(
            f"@keyframes {name} {{ {frames} }} .{name} {{ animation: {name} {last:.2f}s linear infinite }}"
        )
        return name

    def style(self) -> str:
        """Return the sheet."""
        return f"{_STYLE}@media (prefers-reduced-motion: no-preference) {{\n" + "\n".join(self.rules) + "\n}\n"


def draw(races: list[Race]) -> str:
    """Return the SVG."""
    drawn: list[str] = []
    film, top, from_s = Film.of(races), 0.0, 0.0
    for race in races:
        drawn += _race(race, film, top, from_s)
        top += HEAD_PX + LANE_PX * len(race.attempts) + GAP_PX
        from_s += _lasts_s(race)
    seconds = max(attempt.ended_ms for race in races for attempt in race.attempts.values()) / 1000
    width = LEFT_PX + seconds * SECONDS_PX + RIGHT_PX
    size = f'viewBox="0 0 {width:.0f} {top:.0f}" width="{width:.0f}" height="{top:.0f}"'
    alt = f"{len(races)} races of {WIDTH} providers: the first token wins, and the others are cancelled at once"
    lines = [
        f'<svg class="hs-race" xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{alt}">',
        f"<style>{film.style()}</style>",
        *drawn,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _lasts_s(race: Race) -> float:
    return SLOWER * max(attempt.ended_ms for attempt in race.attempts.values()) / 1000 + 2 * FADE_S


def _race(race: Race, film: Film, top: float, from_s: float) -> Iterator[str]:
    def at(ms: float) -> float:
        return from_s + SLOWER * ms / 1000

    said = film.appears(at(race.first_ms))
    yield _text(LEFT_PX + _px(race.first_ms), top + 20, f"first token: {race.first_ms:.0f} ms", f"won {said}")
    for number, attempt in enumerate(race.attempts.values()):
        middle = top + HEAD_PX + LANE_PX * (number + 0.5)
        won = attempt.outcome == "won"
        until = attempt.first_ms if won and attempt.first_ms is not None else attempt.ended_ms
        begin, turn, end = _px(attempt.launched_ms), _px(until), _px(attempt.ended_ms)
        yield _text(0, middle + 4, attempt.provider, "")
        waits = film.grows(at(attempt.launched_ms), at(until))
        yield _bar(LEFT_PX + begin, middle - 2, turn - begin, 4, f"wait {waits}")
        if won:
            writes = film.grows(at(until), at(attempt.ended_ms))
            yield _bar(LEFT_PX + turn, middle - 8, end - turn, 16, f"won {writes}")
            ends = film.appears(at(attempt.ended_ms))
            yield _text(LEFT_PX + end + 8, middle + 4, "answered", f"dim {ends}")
        else:
            yield _text(LEFT_PX + turn + 8, middle + 4, "✕ cancelled", f"cut {film.appears(at(until))}")


def _px(ms: float) -> float:
    return ms / 1000 * SECONDS_PX


def _bar(left: float, top: float, width: float, height: float, classes: str) -> str:
    place = f'x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2"'
    return f'<rect class="{classes}" {place}/>'


def _text(left: float, base: float, words: str, classes: str) -> str:
    return f'<text class="{classes}" x="{left:.1f}" y="{base:.1f}">{escape(words)}</text>'
