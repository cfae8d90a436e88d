"""The run as a picture: p50 and p95 of the time to first token in windows of five seconds, with the faults marked."""

from collections.abc import Callable, Sequence
from math import log10

from benchmarks.fleet.course import Observation
from benchmarks.fleet.faults import Fault, silent
from benchmarks.fleet.installation import POLICIES
from benchmarks.fleet.recovery import WINDOW_S
from benchmarks.fleet.standings import ttfts
from benchmarks.fleet.world import World
from benchmarks.harness.report import known_quantile

WIDTH, PANEL, LEFT, RIGHT, TOP, GAP = 1100, 260, 70, 20, 70, 60
_TICKS_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_LINES = (("p50", 0.50, "#1769aa"), ("p95", 0.95, "#c62828"))


def svg(observations: Sequence[Observation], faults: tuple[Fault, ...], world: World, title: str) -> str:
    """Return the picture: a panel per policy, the oracle of the fleet that was left dashed."""
    end_s = max(each.due_s for each in observations)
    start_s = min(each.due_s for each in observations)

    def x(age_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (age_s - start_s) / (end_s - start_s)

    height = TOP + len(POLICIES) * (PANEL + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        _text(LEFT, 24, title, size=16),
        _text(LEFT, 46, "time to first token at the client, windows of 5 s; dashed: the best the remaining fleet drew"),
    ]
    for row, arm in enumerate(POLICIES):
        top = TOP + row * (PANEL + GAP)
        seen = [each for each in observations if each.arm == arm]
        parts += _frame(arm, top, x, start_s, end_s)
        parts += [_band(fault, top, x) for fault in faults]
        for name, q, colour in _LINES:
            windows = _windows(seen, start_s, end_s)
            parts.append(_line([(x(at), _y(top, known_quantile(ttfts(window), q))) for at, window in windows], colour))
            best = [(x(at), _y(top, known_quantile(_best(window, faults, world), q))) for at, window in windows]
            parts.append(_line(best, colour, dashed=True))
            parts.append(_text(WIDTH - 90 + 40 * (name == "p95"), top + 18, name, colour=colour))
    return "\n".join([*parts, "</svg>", ""])


def _windows(seen: Sequence[Observation], start_s: float, end_s: float) -> list[tuple[float, list[Observation]]]:
    """Return the middles of the windows that are not empty, and what is in them."""
    found: dict[int, list[Observation]] = {}
    for each in seen:
        found.setdefault(int((each.due_s - start_s) // WINDOW_S), []).append(each)
    return [
        (min(end_s, start_s + (number + 0.5) * WINDOW_S), window)
        for number, window in sorted(found.items())
        if ttfts(window)
    ]


def _best(window: Sequence[Observation], faults: tuple[Fault, ...], world: World) -> list[float]:
    best = [world.best_ttft_s(each.number, each.due_s, silent(faults, each.due_s)) for each in window]
    return [ttft_s for ttft_s in best if ttft_s is not None]


def _y(top: float, seconds: float | None) -> float:
    """Return where a time lies: the axis is logarithmic."""
    low, high = log10(_TICKS_S[0]), log10(_TICKS_S[-1])
    at = log10(min(_TICKS_S[-1], max(_TICKS_S[0], seconds or _TICKS_S[0])))
    return top + PANEL * (high - at) / (high - low)


def _frame(arm: str, top: float, x: Callable[[float], float], start_s: float, end_s: float) -> list[str]:
    parts = [_text(LEFT + 8, top + 18, arm, size=15)]
    for tick_s in _TICKS_S:
        y = _y(top, tick_s)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{tick_s:g} s", anchor="end"))
    ages_s = range(0, int(end_s - start_s) + 1, 20)
    return [*parts, *(_text(x(start_s + at), top + PANEL + 18, f"{at} s", anchor="middle") for at in ages_s)]


def _band(fault: Fault, top: float, x: Callable[[float], float]) -> str:
    left, right = x(fault.begin_s), max(x(fault.begin_s) + 2, x(fault.end_s))
    band = f'<rect x="{left:.1f}" y="{top}" width="{right - left:.1f}" height="{PANEL}" fill="#f9a825" opacity="0.25"/>'
    return band + _text(left, top - 5, fault.name, size=11, colour="#8a5a00")


def _line(points: Sequence[tuple[float, float]], colour: str, *, dashed: bool = False) -> str:
    style = 'stroke-width="1" stroke-dasharray="4 3" opacity="0.7"' if dashed else 'stroke-width="2"'
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" {style}/>'


def _text(x: float, y: float, text: str, *, size: int = 13, anchor: str = "start", colour: str = "#222") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{text}</text>'
