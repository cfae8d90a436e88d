"""The session of an agent, by the headers and the fields in which agents name it."""

import json
from typing import Any

import msgspec
import pytest
from multidict import CIMultiDict

from gateway.api.agent_sessions import HEADERS, cache_key_of, session_in, session_of

UUID = "019ee74f-22b5-7043-b5fc-697ca0fbd5a6"
DEVICE = "5f" * 32


def fields(**body: Any) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in body.items()}


@pytest.mark.parametrize("name", HEADERS)
def test_each_header_names_a_session_however_it_is_written(name: str) -> None:
    assert session_in(CIMultiDict({name: UUID})) == UUID
    assert session_in(CIMultiDict({name.title(): UUID})) == UUID


def test_an_agents_own_header_goes_before_that_of_a_gateway() -> None:
    said = CIMultiDict({"helicone-session-id": "helicone", "X-Session-Id": "one", "x-session-affinity": "ses_2"})
    assert session_in(said) == "ses_2"
    assert session_in(CIMultiDict({"user-agent": "curl", "x-request-id": UUID})) is None


@pytest.mark.parametrize("value", ["", " ", "a b", "x" * 129, "Zürich", "a\x00b", "a\udcffb", "a,b", "<script>"])
def test_what_is_no_plain_name_names_no_session(value: str) -> None:
    assert session_in(CIMultiDict({"session-id": value})) is None
    assert session_in(CIMultiDict({"session-id": value, "x-session-id": "plain"})) == "plain"
    user = json.dumps({"device_id": DEVICE, "session_id": value})
    assert session_of(fields(metadata={"user_id": user}), None) is None


@pytest.mark.parametrize(
    ("user", "session"),
    [
        (f"user_{DEVICE}_account__session_{UUID}", UUID),
        (f"user_{DEVICE}_account_{UUID}_session_{UUID}", UUID),
        (json.dumps({"device_id": DEVICE, "account_uuid": "", "session_id": UUID}), UUID),
        ("ann", None),
        ("user_ann_session_one", None),
        ('{"session_id": "one"}', None),
        ("{", None),
    ],
)
def test_claude_code_names_it_in_its_user(user: str, session: str | None) -> None:
    assert session_of(fields(metadata={"user_id": user}), None) == session


def test_cursor_names_its_conversation_in_the_metadata() -> None:
    assert session_of(fields(user="5f3a", metadata={"cursorConversationId": UUID}), None) == UUID
    for other in ("two words", 5, None, ""):
        assert session_of(fields(metadata={"cursorConversationId": other}), None) is None


def test_codex_names_it_as_its_cache_key_and_other_keys_are_none() -> None:
    assert session_of(fields(prompt_cache_key=UUID), UUID) == UUID
    assert session_of(fields(prompt_cache_key="support-bot"), "support-bot") is None
    assert session_of(fields(metadata={"user_id": 5}), None) is None


def test_a_vendors_key_says_nothing_of_the_session_and_differs_by_tenant_and_secret() -> None:
    keys = {
        bytes(cache_key_of(session, tenant, secret))
        for session in (f"ann\0{UUID}", f"bob\0{UUID}")
        for tenant in (None, "tenant")
        for secret in (b"", b"x" * 99)
    }
    assert len(keys) == 8
    for key in keys:
        text = json.loads(key)
        assert len(text) == 32
        assert "ann" not in text
        assert UUID not in text
    assert cache_key_of("a", None, b"s") == cache_key_of("a", None, b"s")
