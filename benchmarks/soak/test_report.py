"""A soak is good when every call has its end and its row, and the gateway keeps nothing; else it says what is wrong."""

from typing import Any

import msgspec
import pytest

from benchmarks.soak.jobs import KINDS, Ending, Fault, Job, Made
from benchmarks.soak.report import Books, Growth, Report, Row, Sample, compared, lines, problems

REST = Sample(0.0, 110.0, 20, 11, 0, 1.0)
SAMPLES = [Sample(float(at), 100.0 + at / 10, 150, 100, 40, 9.0, calls=400 * at) for at in range(60)]
BOOKS = Books(1_140, 0, (), (), (), ())
GOOD = Report(
    seed=1, calls=1_000, warm_up_calls=140, seconds=3.0, reloads=2, reloads_seen=2,
    faults={"reset": 9}, endings={"answered": 1_140}, narrowed={"raced cooling": 7},
    amiss=(), turned_away=(), crashes=(), books=BOOKS,
    start=REST, end=REST,
    rss_mb=Growth(110.0, 112.0), descriptors=Growth(150.0, 151.0), tasks=Growth(100.0, 100.0), samples=SAMPLES,
)  # fmt: skip


def made(number: int, ending: Ending = Ending.ANSWERED, fault: Fault | None = None) -> Made:
    return Made(Job(number, KINDS[0], fault, leave_s=0.1 if fault is Fault.LEAVES else None), ending, 0.1)


def test_a_good_soak_has_no_problem_and_says_what_it_saw() -> None:
    assert list(problems(GOOD)) == []
    told = "\n".join(lines(GOOD))
    assert "1,000 calls in 3 s (333/s), and 2 reloads." in told
    assert "Resident memory: 110 MB in the second quarter, 112 MB in the last (+1.8%)." in told
    assert "At rest before and after: 20 and 20 descriptors, 11 and 11 tasks, 110 and 110 MB." in told


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"amiss": ["soak-1: wrong"]}, "1 calls did not end as they must: soak-1: wrong"),
        ({"books": msgspec.structs.replace(BOOKS, rows=1_139)}, "1,139 rows in the ledger for 1,140 calls"),
        ({"books": msgspec.structs.replace(BOOKS, missing=["soak-3"])}, "1 calls have no row: soak-3"),
        ({"books": msgspec.structs.replace(BOOKS, doubled=["soak-3"])}, "1 calls have several rows: soak-3"),
        ({"end": msgspec.structs.replace(REST, descriptors=21)}, "21 descriptors are open after the end"),
        ({"end": msgspec.structs.replace(REST, tasks=12)}, "12 tasks are left after the end"),
        ({"end": msgspec.structs.replace(REST, pending=3)}, "3 calls are not in SQL a minute after the end"),
        ({"rss_mb": Growth(100.0, 105.1)}, "resident memory grew by 5.1%"),
        ({"reloads": 5, "reloads_seen": 3}, "5 reloads were asked for, and 3 were seen"),
        ({"crashes": ["request.crashed"]}, "1 errors in the gateway's log: request.crashed"),
        ({"turned_away": ["soak-4"] * 11}, "11 calls without a fault were turned away: soak-4"),
    ],
)
def test_each_thing_that_is_wrong_is_said(changes: dict[str, Any], words: str) -> None:
    assert words in "; ".join(problems(msgspec.structs.replace(GOOD, **changes)))


def test_what_is_less_than_at_the_start_or_was_too_short_to_see_is_no_problem() -> None:
    less = msgspec.structs.replace(REST, descriptors=19, tasks=10)
    short = msgspec.structs.replace(GOOD, end=less, rss_mb=None, descriptors=None, tasks=None)
    assert list(problems(short)) == []
    assert "Resident memory: the run was too short to see growth." in list(lines(short))


def test_every_call_has_its_one_row() -> None:
    rows = [Row("soak-1", 200), Row("soak-2", 499)]
    calls = [made(1), made(2, Ending.LEFT, Fault.LEAVES)]
    assert compared(rows, calls, {1, 2}) == Books(2, 0, [], [], [], [])
    assert compared(rows, calls, {1, 2}).balance


def test_rows_that_are_missing_doubled_strange_or_say_something_else_are_named() -> None:
    rows = [Row("soak-1", 200), Row("soak-1", 200), Row("", 200), Row("soak-4", 502)]
    books = compared(rows, [made(1), made(3), made(4)], {1, 3, 4})
    assert books == Books(4, 0, ["soak-3"], ["soak-1"], [""], ["soak-4"])
    assert not books.balance


def test_a_client_that_left_before_anybody_was_asked_need_not_have_made_a_call() -> None:
    left = [made(1, Ending.LEFT, Fault.LEAVES), made(2, Ending.LEFT, Fault.LEAVES)]
    books = compared([], left, {2})
    assert (books.unbegun, books.missing) == (1, ["soak-2"])
