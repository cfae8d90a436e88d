"""The outline of a large answer: its usage and its model, without the list that is nearly all of it."""

import json

import pytest

from providers.models import outline, reported
from providers.refusals import LARGE_BYTES

LONG = [[0.5] * 100_000] * 3
USAGE = {"prompt_tokens": 7, "total_tokens": 7}


def test_the_outline_of_a_large_answer_has_all_but_its_list() -> None:
    answer = json.dumps({"object": "list", "data": LONG, "model": "m", "usage": USAGE}).encode()
    assert json.loads(outline(answer)) == {"object": "list", "data": [], "model": "m", "usage": USAGE}
    assert reported(answer).usage == reported(outline(answer)).usage


@pytest.mark.parametrize(
    "said",
    [
        {"data": LONG, "model": "m"},
        {"note": "[", "usage": USAGE, "data": LONG, "text": "x" * (LARGE_BYTES + 1)},
        {"usage": [], "data": LONG},
    ],
    ids=["no usage", "a long text", "usage is a list"],
)
def test_any_other_answer_stays_as_it_is(said: object) -> None:
    answer = json.dumps(said).encode()
    assert outline(answer) is answer
    assert outline(b'{"data":[1],"usage":{"total_tokens":1}}') == b'{"data":[1],"usage":{"total_tokens":1}}'
