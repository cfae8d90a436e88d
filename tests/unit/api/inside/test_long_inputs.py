"""What a long input names of recent answers is looked for in slices: a turn of the loop reads a bounded part of it."""

from random import Random

import msgspec
import pytest

from gateway.api import recall
from providers import Steps, finished

SLICE = recall._SLICE_BYTES
NAMES = (
    b'{"id":"msg_1"}',
    b'{ "id" : "msg_1" , "role":"user"}',
    b'{"type":null,"id":"msg_1"}',
    b'{"type":"item_reference","id":"msg_1"}',
    b'{"type":"reasoning","id":"rs_1","summary":[]}',
)
OTHERS = (b'{"role":"user","content":"\\"id\\" of reasoning"}', b'{"type":"message","id":"msg_1"}', b'{"id":7}')


def steps_of(steps: Steps[object]) -> int:
    """Return the number of turns of the loop that ``steps`` take."""
    return 1 + sum(1 for _ in steps)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_found_wherever_it_lies(name: bytes) -> None:
    random = Random(1)
    for _ in range(20):
        before = SLICE - random.randint(-2, len(name) + 2) + SLICE * random.randint(0, 1)
        data = b'["' + b"x" * before + b'",' + name + b',"' + b"x" * random.randint(0, SLICE) + b'"]'
        assert finished(recall._naming_steps(msgspec.Raw(data)))


@pytest.mark.parametrize("other", OTHERS)
def test_what_names_nothing_is_searched_in_slices(other: bytes) -> None:
    data = b"[" + (other + b",") * (3 * 2**20 // len(other)) + b"0]"
    assert not finished(recall._naming_steps(msgspec.Raw(data)))
    assert steps_of(recall._naming_steps(msgspec.Raw(data))) >= len(data) // SLICE


def test_the_items_of_a_long_input_are_looked_at_in_slices() -> None:
    item = b'{"role":"user","content":"%b"}' % (b"x" * 1000)
    items = [item] * 3000 + [NAMES[0], b'{"role":"user","content":"%b"}' % (b"x" * 4 * SLICE)]
    assert finished(recall._named_steps(items)) == [(3000, "msg_1")]
    assert steps_of(recall._named_steps(items)) >= sum(map(len, items)) // SLICE - 1
