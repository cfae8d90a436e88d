"""Response headers that say what a client wrote can be sent, whatever it wrote."""

import pytest

from gateway.http import headers
from tests.unit.racing.track import Timetable, Track
from tests.unit.racing.virtual_time import run


async def listed(*dropped: str) -> str:
    call = Track(Timetable("a", [])).race().open_call.call
    return headers.of_answer(call.rendered_as("a", dropped=dropped), "p", "a", 1, {})["x-holeshot-dropped"]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("tools[1].type", "tools[1].type"),
        ("a\r\nset-cookie: b", r"a\r\nset-cookie: b"),
        ("größe", r"gr\xf6\xdfe"),
        ("\x00", r"\x00"),
    ],
)
def test_the_names_of_fields_are_told_in_printable_ascii(field: str, expected: str) -> None:
    assert run(listed("logprobs", field)) == f"logprobs, {expected}"


def test_a_list_of_fields_is_no_longer_than_a_header_may_be() -> None:
    names = [f"field_{number:04}" for number in range(1000)]
    told = run(listed(*names))
    assert len(told) < 2100
    assert told.startswith("field_0000, field_0001, ")
    assert told.endswith(f", and {1000 - told.count('field_')} more")
    assert run(listed("x" * 5000)) == "1 more"
