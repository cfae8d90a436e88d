"""Models whose names clients make up: how many a process keeps."""

from random import Random

import pytest

from gateway.core.calls import Objective
from gateway.core.prompt_classes import answer_class
from gateway.settings import RaceSettings
from gateway.steering import MemoryBoard, Steering, Terms
from gateway.steering.clients import MOST_NAMES, MOST_NAMES_A_CLIENT, ClientsNames
from tests.unit.steering.inside.replica import UNIX_S


def test_of_a_clients_names_the_last_used_stay_and_others_keep_theirs() -> None:
    names, gone = ClientsNames(), list[str]()
    names.asked("alpha/mine", "fair")
    for number in range(1_000):
        gone += names.asked("alpha/often", "weak")
        gone += names.asked(f"alpha/{number}", "weak")
    assert gone == [f"alpha/{number}" for number in range(1_000 - MOST_NAMES_A_CLIENT + 1)]
    names.asked("alpha/mine", "fair")
    assert names.is_known("alpha/often")
    assert names.is_known("alpha/mine")
    assert not names.is_known("alpha/999")


def test_a_name_that_another_client_uses_stays_when_one_has_too_many() -> None:
    names = ClientsNames()
    names.asked("alpha/both", "weak")
    names.asked("alpha/both", "fair")
    gone = [each for number in range(200) for each in names.asked(f"alpha/{number}", "weak")]
    assert "alpha/both" not in gone
    assert names.is_known("alpha/both")


def test_a_process_keeps_a_thousand_names_of_all_clients() -> None:
    names, kept = ClientsNames(), set[str]()
    for number in range(3_000):
        name = f"alpha/{number}"
        kept.add(name)
        kept -= set(names.asked(name, f"client {number % 50}"))
    assert kept == {f"alpha/{number}" for number in range(3_000 - MOST_NAMES, 3_000)}


@pytest.mark.parametrize("seconds", [0.0, 3_600.0])
def test_two_thousand_names_leave_no_more_behind_than_a_hundred(seconds: float) -> None:
    now_s = 0.0
    board = MemoryBoard()
    steering = Steering(board, clock=lambda: now_s, unix_clock=lambda: UNIX_S + now_s, random=Random(1))
    terms, asked = Terms(Objective.FIRST_TOKEN, 1), answer_class(0)
    for number in range(2 * MOST_NAMES):
        name = f"alpha/{number}"
        steering.plan(name, (name,), RaceSettings(), terms, asked, payer="direct", client="weak")
    assert len(steering._snapshots._models) == len(steering._planned) == MOST_NAMES_A_CLIENT
    assert len(steering._learning.healths) <= 2 * MOST_NAMES_A_CLIENT
    now_s += max(31.0, seconds)
    steering.refresh(60.0)  # without any call
    steering.refresh(60.0)
    left = len(steering._snapshots._models)
    assert left == (0 if seconds else MOST_NAMES_A_CLIENT)
    assert len(steering._learning.healths) == left
