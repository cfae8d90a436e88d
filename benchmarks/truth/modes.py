"""Calls of which each model has a mode of its own: what the ledger says beside what their fleet did."""

from collections.abc import Iterator, Sequence

from benchmarks.truth.course import PROFILE
from benchmarks.truth.facts import Attempt, Called, Facts
from benchmarks.truth.fleet import CLAUSE, Seen
from benchmarks.truth.rules import Figure, Rule, at_most, near, same

CHARS_S = 15.0  # that a voice speaks
MOST_GAIN_MS = 5_000.0  # longer is no answer of this fleet
MOST_COUNTED = 1_000_000  # tokens of an answer, of a model whose longest is not known


def modes(facts: Facts) -> Iterator[Figure]:
    """Compare the calls of each mode."""
    for model, of_calls, of_attempts in (
        ("spoken", _SPOKEN_CALLS, _SPOKEN),
        ("strict", _STRICT_CALLS, _STRICT),
        ("held", _HELD, {}),
        ("kept", {}, _KEPT),
        ("boasting", {}, _BOASTING),
    ):
        calls = [call for call in facts.others if call.row["model"] == model]
        yield Figure(f"{model}, some", 1, len(calls), "≥ 1", bool(calls))
        yield from _compared(model, of_calls, calls)
        yield from _compared(model, of_attempts, [one for call in calls for one in call.attempts])


def _compared(model: str, rules: dict[str, Rule], rows: Sequence[Called] | Sequence[Attempt]) -> Iterator[Figure]:
    for column, rule in rules.items():
        for figure in rule(column, rows):
            yield Figure(f"{model}, {figure.name}", figure.truth, figure.measured, figure.goal, figure.holds)


def _won(one: Attempt) -> bool:
    return one.seen is not None and one.persona.name == one.made.provider


def _clause(one: Attempt) -> tuple[Seen, int] | None:
    """Return a request that wrote its first clause, and which of its chunks ended that."""
    at = CLAUSE // one.persona.per_chunk
    return None if one.seen is None or len(one.seen.writes) <= at else (one.seen, at)


def _clause_ms(one: Attempt) -> float | None:
    found = _clause(one)
    return None if found is None else (found[0].writes[found[1]] - found[0].arrived_at) * 1000


def _silence_ms(one: Attempt) -> float | None:
    """Return how long a listener waits after the first clause, if a voice begins with it."""
    found = _clause(one)
    if found is None or len(found[0].writes) <= found[1] + 1:
        return None
    seen, at = found
    heard_s = sum(seen.chars[: at + 1]) / CHARS_S
    return (seen.writes[at + 1] - seen.writes[at] - heard_s) * 1000


def _valid_ms(one: Attempt) -> float | None:
    """Return when a tool call was complete that can be read."""
    seen = one.seen
    if seen is None or not seen.is_told or one.persona.name == "sloppy":
        return None
    return (seen.writes[-1] - seen.arrived_at) * 1000


def _began_invalid(call: Called) -> bool | None:
    """Return whether the first to begin was the one whose tool calls are broken; None where its end was not seen."""
    first = min((one.seen for one in call.attempts if one.seen and one.seen.writes), key=lambda seen: seen.writes[0])
    return (first.is_told or None) if first.name == "sloppy" else False


def _was_held(call: Called) -> bool:
    return call.row["held_ms"] is not None


def _held_ms(call: Called) -> float | None:
    """Return how long the first to begin waited for the one that writes faster."""
    firsts = {one.persona.name: one.seen.first_at for one in call.attempts if one.seen}
    early, writer = firsts.get("early"), firsts.get("writer")
    return None if early is None or writer is None or early > writer else (writer - early) * 1000


_SPOKEN_CALLS: dict[str, Rule] = {"profile": same(lambda _: PROFILE)}
_SPOKEN: dict[str, Rule] = {"sentence_ms": near(_clause_ms, only=_won), "speech_pause_ms": near(_silence_ms, only=_won)}
_STRICT_CALLS: dict[str, Rule] = {"first_was_invalid": same(_began_invalid, off=0.1)}
_STRICT: dict[str, Rule] = {"valid_ms": near(_valid_ms, only=lambda one: one.seen is not None, off=0.1)}
_HELD: dict[str, Rule] = {
    "held_ms": near(_held_ms, only=_was_held),
    "held_for": same(lambda _: "writer/m", only=_was_held),
    "held_gain_ms": at_most(lambda _: MOST_GAIN_MS, only=_was_held, least=1.0),
}
_KEPT: dict[str, Rule] = {"is_kept": same(lambda one: one.persona.name != one.made.provider)}
_BOASTING: dict[str, Rule] = {
    "reported_tokens": same(lambda one: round(one.seen.draw.tokens * one.persona.overstates)),
    "completion_tokens": same(lambda _: MOST_COUNTED),
    "tokens_source": same(lambda _: "implausible"),
}
