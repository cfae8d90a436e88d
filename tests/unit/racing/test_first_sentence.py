"""With ``win_on: sentence`` the first clause that can be spoken wins, and silence after the first words does not."""

from random import Random
from typing import Any

import msgspec
import pytest

from gateway.core.attempts import Role, WinOn
from gateway.core.calls import Mode
from gateway.steering import Speaking
from tests.unit.racing.inside.spoken_clauses import FIRST_S, Figures, Text, ask, drawn, text
from tests.unit.racing.test_race import answers, hangs
from tests.unit.racing.track import Timetable, Track
from tests.unit.racing.virtual_time import run
from tests.unit.steering.inside.test_planner import candidate, planned


def test_a_text_can_be_spoken_once_its_first_clause_has_ended() -> None:
    dice = Random(1)
    seen: list[Text] = [text(dice) for _ in range(300)]
    firsts = {each.whole[: each.needed_chars] for each in seen}
    assert {"Yes. ", "Dr. Smith is free at 3.30 p.m. on Monday. ", "Here is what you need:\n"} <= firsts
    assert any(first.startswith("If you look") and len(first.split()) == 13 for first in firsts)


def test_nobody_who_falls_silent_wins_unless_a_clause_was_there_before() -> None:
    dice = Random(2)
    by_token, by_sentence = Figures(winners=[], spoken_s=[]), Figures(winners=[], spoken_s=[])
    for _ in range(40):
        draws = {name: drawn(dice, name, 1.0 if name == "quick" else 0.0) for name in FIRST_S}
        ask(draws, WinOn.ANY, by_token)
        ask(draws, WinOn.SENTENCE, by_sentence)
    assert by_sentence.winners.count("steady") > by_token.winners.count("steady")
    assert all(one <= other + 1e-6 for one, other in zip(by_sentence.spoken_s, by_token.spoken_s, strict=True))
    assert by_sentence.heard >= 40
    assert by_sentence.early == 0


@pytest.mark.parametrize(
    ("primary", "asked_s"),
    [
        (hangs("first"), 0.8),  # silent: at once
        (answers("first", 0.7, "It ", "is. ", "Yes?"), None),  # has begun, and has its clause within the time of one
        (answers("first", 0.3, "It ", "is. ", gap=9.0), 1.0),  # began, and dribbles: when others have theirs
        (answers("first", 0.75, "It ", "is. ", gap=9.0), 1.15),  # has just begun: after the time of a clause
        (answers("first", 0.9, "It ", "is. ", gap=9.0), 0.8),  # began too late
    ],
)
def test_a_hedge_waits_for_who_has_begun_to_speak_and_no_longer_for_who_is_silent(
    primary: Timetable, asked_s: float | None
) -> None:
    launches = [("first", 0.0, Role.PRIMARY), ("second", 0.8, Role.HEDGE)]
    track = Track(primary, answers("second", 0.1, "So it is. ", "Yes."), launches=launches, win_on=WinOn.SENTENCE)
    own, hedge = track.plan.launches
    hedge = msgspec.structs.replace(hedge, speaking=Speaking(at_s=1.0, after_s=0.4))
    track.plan = msgspec.structs.replace(track.plan, launches=(own, hedge))
    record = run(track.run())
    offsets = [each.launch_offset_ms for each in record.attempts if each.deployment == "second"]
    assert offsets == ([] if asked_s is None else [pytest.approx(1000 * asked_s)])


@pytest.mark.parametrize(
    ("primary", "rescue_s", "asked_s"),
    [
        (answers("first", 0.75, "It ", "is. ", gap=9.0), 1.0, 1.75),  # its hedge is refused at 1.15: too late a rescue
        (answers("first", 0.3, "It ", "is. ", gap=9.0), 1.2, 1.5),  # refused at 1.0
        (hangs("first"), 1.0, 1.0),  # nobody speaks: refused at 0.8
        (hangs("first"), 0.5, 0.8),  # it counts as hanging already
    ],
)
def test_a_hedge_that_the_budget_refuses_beside_who_speaks_is_no_rescue_at_the_same_instant(
    primary: Timetable, rescue_s: float, asked_s: float
) -> None:
    launches = [("first", 0.0, Role.PRIMARY), ("second", 0.8, Role.HEDGE)]
    second = answers("second", 0.1, "So it is. ", "Yes.")
    track = Track(primary, second, launches=launches, win_on=WinOn.SENTENCE, permits=0, rescue_s=rescue_s)
    own, hedge = track.plan.launches
    hedge = msgspec.structs.replace(hedge, speaking=Speaking(at_s=1.0, after_s=0.4))
    track.plan = msgspec.structs.replace(track.plan, launches=(own, hedge))
    record = run(track.run())
    assert [(each.role, each.launch_offset_ms) for each in record.attempts[1:]] == [
        (Role.FAILOVER, pytest.approx(1000 * asked_s))
    ]


@pytest.mark.parametrize("permits", [1, 0], ids=["hedged", "refused"])
def test_a_hedge_and_the_rescues_behind_it_that_wait_for_one_speaker_keep_their_distance(permits: int) -> None:
    fleet = [candidate(name, score_s) for name, score_s in zip("abcd", (0.6, 1.2, 1.8, 2.4), strict=True)]
    # Fifteen tokens, which a clause of who has begun may take, take 1.25 s.
    slow = [
        msgspec.structs.replace(each, estimate=msgspec.structs.replace(each.estimate, decode_tps=12.0))
        for each in fleet
    ]
    plan = planned(*slow, mode=Mode.HEDGE, budget=0.3, spoken=True)
    hedge_s, first_s, second_s = (each.delay_s for each in plan.launches[1:])
    roles = [Role.HEDGE if permits else Role.FAILOVER, Role.FAILOVER, Role.FAILOVER]

    def asked(primary: Timetable) -> dict[str, tuple[Role, float]]:
        track = Track(primary, hangs("b"), hangs("c"), hangs("d"), win_on=WinOn.SENTENCE, permits=permits)
        track.plan = plan
        record = run(track.run())
        return {each.deployment: (each.role, each.launch_offset_ms) for each in record.attempts[1:]}

    def expected(*starts_s: float) -> dict[str, tuple[Role, float]]:
        at: list[Any] = [pytest.approx(1000 * start_s) for start_s in starts_s]
        return dict(zip("bcd", zip(roles, at, strict=True), strict=True))

    # It has begun before the hedge was due: all wait for it. A refused hedge is the first rescue, the others come too.
    dribbles = answers("a", 0.25, "It ", "is. ", gap=8.0)
    assert asked(dribbles) == expected(1.5, 1.5 + first_s - hedge_s, 1.5 + second_s - hedge_s)
    # It has begun after that: the rescues wait for it, the first one for no more than that.
    assert plan.rescue_s is not None
    dribbles = answers("a", 0.4, "It ", "is. ", gap=8.0)
    assert asked(dribbles) == expected(hedge_s if permits else plan.rescue_s, 1.65, 1.65 + second_s - first_s)
    # Where all are silent they start as planned.
    silent = answers("a", 8.0, "It is. ", "Yes.")
    assert asked(silent) == expected(hedge_s if permits else plan.rescue_s, first_s, second_s)
