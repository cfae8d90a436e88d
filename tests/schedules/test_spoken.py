"""Callers who listen: whoever goes on, at whichever instant, they hear one text of one beginning, and no word twice."""

from collections import Counter

from gateway.core.attempts import Outcome
from tests.schedules.checks import wrong
from tests.schedules.scenario import spoken
from tests.schedules.simulation import run


def test_whatever_happens_listeners_hear_one_text() -> None:
    problems: dict[int, list[str]] = {}
    kept: Counter[Outcome] = Counter()
    takeovers: Counter[str | None] = Counter()
    for seed in range(120):
        evidence = run(spoken(seed))
        if found := wrong(evidence):
            problems[seed] = found
        kept.update(row.outcome for row in evidence.store.attempts.values() if row.is_kept)
        takeovers.update(call.takeover for call in evidence.store.calls.values())
    assert not problems
    # Rivals say something else, answer, and break; others go on where none can, or nobody does.
    assert {Outcome.LOST, Outcome.SUPERSEDED, Outcome.WON, Outcome.FAILED} <= kept.keys()
    assert {"finished", "rescued", "nobody"} <= takeovers.keys()
