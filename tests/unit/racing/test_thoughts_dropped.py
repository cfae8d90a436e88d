"""What a vendor tells of thoughts that it did not show its model is in its attempt's record, however that ended."""

from typing import Any

import msgspec

from gateway.core.attempts import AttemptRecord, Outcome
from gateway.core.calls import CallRecord
from providers import ErrorKind, UpstreamError
from providers.dialects import MESSAGES
from tests.unit.racing.inside.test_prompt import MESSAGE, event
from tests.unit.racing.test_audits import to_the_end
from tests.unit.racing.test_race import answers
from tests.unit.racing.track import Step, Timetable, Track
from tests.unit.racing.virtual_time import run

THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "bWFkZQ=="}
ASKED: dict[str, Any] = {"messages": [{"role": "assistant", "content": [THOUGHT]}]}
CHECKS = ("prefix", "organization", "prefix")
DROPPED = [
    {"type": "thinking_dropped", "path": f"messages.{at}.content.0", "reason": f"{check}_binding_mismatch"}
    for at, check in enumerate(CHECKS)
]
BEGUN = event({**MESSAGE[0], "message": {**MESSAGE[0]["message"], "input_transformations": DROPPED}})
COUNTED = {"prefix": 2, "account": 1}
REST: list[tuple[float, Step]] = [*((1.5, event(said)) for said in MESSAGE[1:]), (1.5, None)]


def raced(*steps: tuple[float, Step], quick: float, audited: tuple[str, ...] = (), asked: Any = None) -> Track:
    """Return a race of one that speaks Messages with one that answers in chat after ``quick`` seconds."""
    fields = ASKED if asked is None else asked
    track = Track(Timetable("claude", steps), answers("quick", quick), audited=audited, fields=fields)
    claude = msgspec.structs.replace(track.model.deployments["claude"], speaks=(MESSAGES,))
    track.model = msgspec.structs.replace(track.model, deployments={**track.model.deployments, "claude": claude})
    return track


def rows(record: CallRecord, track: Track) -> dict[str, AttemptRecord]:
    return {each.deployment: each for each in (*record.attempts, *track.recorder.audited)}


def test_a_loser_has_what_it_was_told_before_it_was_cut() -> None:
    track = raced((0.1, BEGUN), *REST, quick=0.2)
    record = run(to_the_end(track))
    found = rows(record, track)
    assert (found["claude"].outcome, found["claude"].thoughts_dropped) == (Outcome.LOST, COUNTED)
    assert (found["quick"].outcome, found["quick"].thoughts_dropped) == (Outcome.WON, None)
    assert not record.dropped  # the client has the other's answer


def test_a_loser_that_was_cut_before_has_nothing() -> None:
    track = raced((0.3, BEGUN), *REST, quick=0.2)
    found = rows(run(to_the_end(track)), track)
    assert (found["claude"].outcome, found["claude"].thoughts_dropped) == (Outcome.LOST, None)


def test_a_watched_loser_has_it() -> None:
    track = raced((0.3, BEGUN), *REST, quick=0.2, audited=("claude", "quick"))
    found = rows(run(to_the_end(track)), track)
    assert (found["claude"].outcome, found["claude"].thoughts_dropped) == (Outcome.SUPERSEDED, COUNTED)


def test_one_that_failed_has_it() -> None:
    track = raced((0.1, BEGUN), (0.2, UpstreamError(ErrorKind.DISCONNECTED, "gone")), quick=0.9)
    found = rows(run(to_the_end(track)), track)
    assert (found["claude"].outcome, found["claude"].thoughts_dropped) == (Outcome.FAILED, COUNTED)


def test_the_winner_has_it_and_its_client_is_told() -> None:
    track = raced((0.1, BEGUN), *REST, quick=9.0)
    record = run(to_the_end(track))
    assert (record.winner_attempt_id, rows(record, track)["claude"].thoughts_dropped) == ("attempt-1", COUNTED)
    assert record.dropped == tuple(f"messages[{at}].content[0]" for at in range(len(CHECKS)))


def test_what_the_last_event_tells_replaces_it() -> None:
    """A model of the vendor's that took over was shown all."""
    end: list[tuple[float, Step]] = [
        (1.5, event({**said, "input_transformations": []} if said["type"] == "message_delta" else said))
        for said in MESSAGE[1:]
    ]
    track = raced((0.1, BEGUN), *end, (1.5, None), quick=9.0)
    assert rows(run(to_the_end(track)), track)["claude"].thoughts_dropped is None


def test_nobody_looks_where_a_request_has_no_thoughts() -> None:
    track = raced((0.1, BEGUN), *REST, quick=9.0, asked={"messages": []})
    assert rows(run(to_the_end(track)), track)["claude"].thoughts_dropped is None
