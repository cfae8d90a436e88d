"""The benchmark of failing providers: how an outcome is judged, and the table that it writes."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from benchmarks.failover.__main__ import PAGE, table
from benchmarks.failover.cells import TEXT, Row, script
from benchmarks.harness import report
from benchmarks.harness.report import END, write_lines
from providers.simulator import Delta, Drop, Status
from tests.support.faults import CUT, FAULTS, SLOWER, WELL, Outcome, Verdict, judged, judged_in_turn

BEGIN = report.BEGIN.format("failover")
WHOLE = Outcome(status=200, text="a b c", is_whole=True, error=None, ttft_s=0.1, end_s=0.2)
SILENCE = FAULTS["silence"]


@pytest.mark.parametrize(
    ("word", "change"),
    [
        ("pass", {}),
        ("partial", {"ttft_s": 11.0, "end_s": 11.1}),
        ("partial", {"pause_s": 20.0, "end_s": 21.0}),
        ("partial", {"asked_first": 3}),
        ("safe", {"text": "a b", "error": "disconnected", "is_whole": False}),
        ("safe", {"text": "", "error": "all_failed", "is_whole": False, "ttft_s": None, "status": 502}),
        ("fail", {"text": "a b"}),
        ("fail", {"text": "a x"}),
        ("fail", {"is_whole": False}),
        ("fail", {"text": "a x", "error": "disconnected", "is_whole": False}),
        ("fail", {"end_s": None}),
        ("fail", {"end_s": 66.0}),
    ],
)
def test_an_outcome_is_judged_by_what_its_client_has(word: str, change: dict[str, Any]) -> None:
    assert judged(SILENCE, replace(WHOLE, **change), {"a b c"}).word == word


def test_where_nobody_can_answer_an_error_soon_passes() -> None:
    refused = replace(WHOLE, text="", error="all_failed", is_whole=False, ttft_s=None)
    assert judged(FAULTS["503 of all"], refused, {"a b c"}).word == "pass"
    assert judged(FAULTS["503 of all"], replace(refused, end_s=3.0), {"a b c"}).word == "safe"


@pytest.mark.parametrize(("back_s", "word"), [(5.0, "pass"), (31.0, "partial"), (None, "partial")])
def test_after_an_outage_the_first_choice_should_be_back(back_s: float | None, word: str) -> None:
    assert judged_in_turn(FAULTS["503 for 60 s"], [WHOLE] * 25, {"a b c"}, back_s).word == word


def test_a_provider_goes_on_with_what_its_request_begins() -> None:
    begun = TEXT[: TEXT.index(" word41")]
    said = "".join(step.text for step in script(SLOWER, begun) if isinstance(step, Delta))
    assert begun + said == TEXT
    assert any(isinstance(step, Status) for step in script(replace(WELL, habit="refuses"), begun))


def test_a_cut_answer_has_forty_words() -> None:
    steps = script(CUT, "")
    assert "".join(step.text for step in steps if isinstance(step, Delta)).split() == TEXT.split()[:40]
    assert isinstance(steps[-1], Drop)


def test_a_new_table_replaces_the_old_one_on_the_page(tmp_path: Path) -> None:
    row = Row("silence", "`single`", Verdict("pass"), (WHOLE,), 2)
    lines = table([row], ["silence"], ["`single`"]).markdown()
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\n\nold\n\n{END}\nafter\n", encoding="utf-8")
    write_lines(page, "failover", lines)
    made = [
        "| the provider | `single` |",
        "|---|---|",
        "| silence | pass: 0.1, 0.2 s, 2 |",
        "| all | 1 pass |",
    ]
    assert page.read_text(encoding="utf-8") == "\n".join(["before", BEGIN, "", *made, "", END, "after", ""])


def test_the_page_has_its_marks_and_a_row_for_each_fault() -> None:
    page = PAGE.read_text(encoding="utf-8")
    made = page.partition(BEGIN)[2].partition(END)[0]
    assert [name for name in FAULTS if f"| {name} |" not in made] == []
