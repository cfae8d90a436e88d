"""Calls put together from the events of the live stream, and their lines."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.text import Text

from gateway.terminal_text import visible

_WAITS = 10_000  # running calls that are remembered; the oldest is forgotten first
_COLOURS = {"won": "green", "failed": "red", "timeout": "red", "stalled": "red"}
_WORDS = {"lost": "cut", "superseded": "later", "client_gone": "left", "interrupted": "interrupted"}
_FAILED = 400


class TailedCall(msgspec.Struct):
    """One call as far as its events have told. Times are milliseconds since its receipt, or since a launch."""

    began: dict[str, Any]
    attempts: dict[str, dict[str, Any]] = {}  # by id, in the order of their launch
    done: dict[str, Any] = {}

    @property
    def ttft_ms(self) -> float | None:
        """Milliseconds until the first token."""
        return self.done.get("ttft_ms")

    @property
    def failed(self) -> bool:
        """Whether it ended with an error, or its client left."""
        return self.done.get("error") is not None or (self.done.get("status") or 0) >= _FAILED

    def as_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        attempts = [{name: value for name, value in each.items() if name != "call"} for each in self.attempts.values()]
        return {**self.began, **self.done, "attempts": attempts}

    def line(self) -> Text:
        """Return one line: when, status, model, client, times, tokens, cost, and each attempt."""
        began, done = self.began, self.done
        at = datetime.fromtimestamp(began["at_ms"] / 1000, UTC).astimezone().strftime("%H:%M:%S")
        status = done.get("status")
        line = Text(f"{at} ")
        line.append("  ? " if status is None else f"{status:>3} ", "red" if self.failed else "green")
        line.append(visible(began["model"]), "bold")
        if began.get("client"):
            line.append(f" {visible(began['client'])}", "dim")
        line.append(f"  {_ms(done.get('ttft_ms'))} first, {_ms(done.get('total_ms'))} in all")
        if (tokens := done.get("completion_tokens")) is not None:
            line.append(f", {tokens:,} tok")
        if (usd := done.get("cost_usd")) is not None:
            line.append(f", ${usd:.6f}".rstrip("0").rstrip("."))
        if done.get("error"):
            line.append(f"  {visible(done['error'])}", "red")
        for number, attempt in enumerate(self.attempts.values()):
            line.append("  | " if number == 0 else ", ", "dim")
            line.append_text(_attempt(attempt))
        return line


def tailed(events: Iterable[tuple[str, Any]]) -> Iterator[TailedCall | str]:
    """Yield each call when it ends, and words about what was not seen."""
    calls: dict[str, TailedCall] = {}
    for kind, data in events:
        match kind:
            case "hello":
                calls = {each["id"]: _running(each) for each in data["running"]}
            case "call" | "running":
                calls[data["id"]] = _running(data)
                if len(calls) > _WAITS:
                    del calls[next(iter(calls))]
            case "launch" if data["call"] in calls:
                calls[data["call"]].attempts[data["attempt"]] = data
            case "first" | "end" if data["call"] in calls:
                calls[data["call"]].attempts.setdefault(data["attempt"], {}).update(data)
            case "done" if data["id"] in calls:
                call = calls.pop(data["id"])
                call.done = data
                yield call
            case "gap":
                calls = {id_: call for id_, call in calls.items() if id_ in data["running"]}
                yield f"{data['dropped']} events were dropped: calls end faster than they are read"
            case "lost":
                calls.clear()
                yield f"{data}; trying again"
            case _:
                pass


def _running(data: dict[str, Any]) -> TailedCall:
    attempts = {each["attempt"]: dict(each) for each in data.get("attempts", ())}
    return TailedCall({name: value for name, value in data.items() if name != "attempts"}, attempts)


def _attempt(attempt: dict[str, Any]) -> Text:
    """Return where it ran, and how it ended: with its first token, or how long it was waited for."""
    outcome = attempt.get("outcome")
    words = _WORDS.get(outcome, outcome) if outcome is not None else "running"
    line = Text(visible(attempt.get("deployment", "?")))
    line.append(f" {words}", _COLOURS.get(outcome or "", "dim"))
    at_ms = attempt.get("ttft_ms") if attempt.get("ttft_ms") is not None else attempt.get("ms")
    if at_ms is not None:
        line.append(f" {_ms(at_ms)}", "dim")
    if attempt.get("error"):
        line.append(f" ({visible(attempt['error'])})", "red")
    return line


def _ms(value: float | None) -> str:
    if value is None:
        return "–"  # noqa: RUF001 - printed for unknown figures
    return f"{value:.0f} ms" if value < 1000 else f"{value / 1000:.2f} s"  # noqa: PLR2004 - a second
