"""Each fault does what docs/reference/faults.md says of it: the page is made of these very runs."""

import pytest

from tests.schedules.faults import FAULTS, PAGE, Fault, line, page, seen

ALL = {name: fault for faults in FAULTS.values() for name, fault in faults.items()}


@pytest.mark.parametrize("name", ALL)
def test_what_is_seen_of_a_fault_is_what_the_page_says(name: str) -> None:
    assert line(name, seen(ALL[name])) in PAGE.read_text(encoding="utf-8")


def test_the_page_has_every_fault_and_no_other() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.schedules.faults"


def test_a_call_without_a_fault_is_answered_by_the_provider_that_is_asked_first() -> None:
    assert seen(Fault()).client == "200, all of the first"
