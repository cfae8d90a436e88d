"""Members of what stands in lists are found as refusals name them, in time and depth that neither side decides."""

import json
from typing import Any

import msgspec
import pytest

from providers.bodies import raw_json
from providers.exchange.members import EVERYWHERE, Member, found, without


def fields_of(**fields: Any) -> dict[str, msgspec.Raw]:
    return {name: raw_json(value) for name, value in fields.items()}


def path_of(member: Member | None) -> str | None:
    return None if member is None else member.path


@pytest.mark.parametrize(
    ("block", "named", "path"),
    [
        ({"type": "text", "text": "a", "cache_control": {}}, "text.cache_control", "messages.content.cache_control"),
        ({"image_url": {"detail": "original"}}, "image_url.image_url.detail", "messages.content.image_url.detail"),
        ({"image_url": {"url": ""}, "name": "a"}, "image_url.name", "messages.content.name"),
    ],
)
def test_types_of_unions_within_a_path_are_no_members(block: Any, named: str, path: str) -> None:
    fields = fields_of(messages=[{"content": ["a", block]}])
    assert path_of(found(fields, ["messages", "0", "content", "1", *named.split(".")], str)) == path


def test_a_path_that_a_request_repeats_is_searched_once() -> None:
    value: Any = {"last": 1}
    for _ in range(60):
        value = {"a": [value]}
    assert found(fields_of(messages=[value]), ["messages", *["a"] * 60, "missing"], str) is None
    assert found(fields_of(messages=[value]), ["messages", *["a", "0"] * 60, "missing"], str) is None
    assert path_of(found(fields_of(messages=[value]), ["messages", *["a"] * 61, "last"], str)) is not None


@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"content":', "}"), ('{"content":[', "]}")])
def test_what_no_api_has_is_not_followed_to_its_bottom(begin: str, end: str) -> None:
    deep = msgspec.Raw(f"[{begin * 450}{json.dumps({'cache_control': {}})}{end * 450}]".encode())
    deeper = msgspec.Raw(f"[{begin * 3000}{json.dumps({'cache_control': {}})}{end * 3000}]".encode())
    for messages in (deep, deeper):
        fields = {"messages": messages}
        found(fields, ["messages", "0", "cache_control"], str)
        assert without(fields, "messages.cache_control") == fields
        without(fields, f"{EVERYWHERE}cache_control")
