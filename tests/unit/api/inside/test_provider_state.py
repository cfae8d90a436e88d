"""What a request names is found in bounded slices, wherever and however it is written."""

import msgspec
import pytest

from gateway.api.provider_state import MOST_NAMES, names_of
from gateway.core.errors import InvalidRequest, TooManyValues
from providers import finished
from providers.dialects import NamedId, named_in_answer

MOST_VALUES = 50_000


def named(api: str, **fields: object) -> list[NamedId]:
    return finished(
        names_of(api, {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}, MOST_VALUES)
    )


def test_a_field_that_names_something_has_a_limit_of_values() -> None:
    many = [{"type": "message"}] * MOST_VALUES
    assert named("responses", input=many) == []
    with pytest.raises(TooManyValues, match="more than 50000 JSON values"):
        named("responses", input=[*many, {"type": "item_reference", "id": "msg_1"}])


def test_commas_in_a_long_text_are_no_values() -> None:
    text = {"role": "user", "content": "a, [b] and {c}, " * MOST_VALUES}
    [found] = named("responses", input=[text, {"type": "item_reference", "id": "msg_1"}])
    assert found.field == "input[1].id"


def test_a_request_has_a_limit_of_names() -> None:
    with pytest.raises(InvalidRequest, match="more than 5000"):
        named("responses", input=[{"id": f"msg_{number}"} for number in range(MOST_NAMES + 1)])


def test_a_long_conversation_is_searched_in_slices() -> None:
    items = [{"type": "item_reference", "id": f"msg_{number}"} for number in range(1000)]
    steps = sum(1 for _ in names_of("responses", {"input": msgspec.Raw(msgspec.json.encode(items))}, MOST_VALUES))
    assert steps >= 10


def test_other_apis_of_which_nothing_is_known_name_nothing() -> None:
    assert named("embeddings", input=[{"file_id": "f"}]) == []


@pytest.mark.parametrize("said", [b"", b"[DONE]", b"[1]", b'"id"', b'{"id": 1.5e400}', b'{"output": {"id": [1]}}'])
def test_what_a_provider_says_otherwise_gives_no_names(said: bytes) -> None:
    assert [*named_in_answer("responses", said)] == []
