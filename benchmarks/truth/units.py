"""Calls that are billed by tier and by unit: their bounds beside the bill, and how far apart these are, by each.

A file of its own, as its rows have bills that no other call of the run has.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from benchmarks.truth.course import ASKED, BILLED
from benchmarks.truth.facts import Attempt, Facts, bill
from benchmarks.truth.rules import Figure, equal, same

_WORDS = {None: None, "auto": None, "default": "standard"}  # how the ledger names what is asked for


def units(facts: Facts) -> Iterator[Figure]:
    """Compare each attempt's bounds with its bill, and what the ledger says of tiers and units."""
    attempts = [
        one for call in facts.others if call.row["model"] in BILLED for one in call.attempts if len(one.requests) == 1
    ]
    yield Figure("billed by tier or unit, some", 1, len(attempts), "≥ 1", bool(attempts))
    by_kind: dict[str, list[Attempt]] = defaultdict(list)
    for one in attempts:
        by_kind[_kind(one)].append(one)
    for kind, some in sorted(by_kind.items()):
        yield from _bounds(kind, some)
    yield from _bounds("tiers and units, all", attempts)
    told = [one for one in attempts if _is_whole(one) and (one.persona.says_tier or not one.persona.tiers)]
    for side in ("cost_low_usd", "cost_usd", "cost_high_usd"):
        off = sum(one.row[side] is None or abs(one.row[side] - bill([one])) > 1e-12 for one in told)
        yield equal(f"tiers and units, {side} that is not the bill of {len(told)} whole answers", 0, off)
    for column, truth in (
        ("tier_asked", _asked),
        ("tier_served", _served),
        ("units", _units),
        ("units_cost_usd", _units_usd),
    ):
        for figure in same(truth)(column, told):
            yield Figure(f"tiers and units, {figure.name}", figure.truth, figure.measured, figure.goal, figure.holds)


def _bounds(kind: str, some: Sequence[Attempt]) -> Iterator[Figure]:
    """Yield how many attempts are outside their bounds, and the sums of both, of those that have an upper one."""
    outside = [
        one
        for one in some
        if (one.row["cost_low_usd"] or 0.0) > bill([one]) + 1e-12
        or (one.row["cost_high_usd"] is not None and one.row["cost_high_usd"] < bill([one]) - 1e-12)
    ]
    example = f"; call {outside[0].made.job.number}" if outside else ""
    yield equal(f"{kind}, outside its bounds of {len(some)}{example}", 0, len(outside))
    bounded = [one for one in some if one.row["cost_high_usd"] is not None]
    truth, low, high = (sum(usd) for usd in zip(*[_usd(one) for one in bounded], strict=True)) if bounded else (0, 0, 0)
    width = f"{low / truth:.2f} to {high / truth:.2f} times" if truth else "nothing billed"
    yield Figure(f"{kind}, at most, of {len(bounded)}", truth, high, f"≥ truth; {width}", high >= truth * (1 - 1e-9))


def _usd(one: Attempt) -> tuple[float, float, float]:
    return bill([one]), one.row["cost_low_usd"], one.row["cost_high_usd"]


def _kind(one: Attempt) -> str:
    """Return the tier asked for and the one that served, or the unit, and whether the attempt has won."""
    who = "winners" if one.row["outcome"] == "won" else "losers"
    if not one.persona.tiers:
        return f"{'searches' if one.persona.searches else 'sound'}, {who}"
    [seen] = one.requests
    silent = "" if one.persona.says_tier else ", not told"
    return f"{_asked_word(one) or 'no tier'} asked, {seen.tier or 'standard'} served{silent}, {who}"


def _asked_word(one: Attempt) -> str | None:
    return ASKED[one.made.job.number % len(ASKED)] if one.persona.tiers else None


def _is_whole(one: Attempt) -> bool:
    return one.requests[0].is_told and one.row["outcome"] == "won"


def _asked(one: Attempt) -> str | None:
    word = _asked_word(one)
    return _WORDS.get(word, word)


def _served(one: Attempt) -> str | None:
    served = one.requests[0].tier
    return served or ("standard" if one.persona.tiers and _asked(one) is not None else None)


def _units(one: Attempt) -> dict[str, dict[str, float]] | None:
    persona, draw = one.persona, one.requests[0].draw
    if persona.searches:
        return {"web_search": {"n": persona.searches, "usd": persona.search_usd}}
    return None if persona.speaks_usd is None else {"audio_output": {"n": draw.tokens // 2, "usd": persona.speaks_usd}}


def _units_usd(one: Attempt) -> float | None:
    found = _units(one)
    return None if found is None else sum(each["n"] * each["usd"] for each in found.values())
