"""What Claude at Bedrock cites of a client's documents, for clients of Messages: Converse says it in its own words."""

from typing import Any

import msgspec
import pytest

from providers.bodies import events
from providers.dialects import CHAT, MESSAGES, ConverseToChat, FrameMessage, events_of_converse, translations

Json = dict[str, Any]

WHERE: dict[str, Json] = {
    "char": {"documentChar": {"documentIndex": 0, "start": 3, "end": 9}},
    "page": {"documentPage": {"documentIndex": 1, "start": 2, "end": 3}},
    "content_block": {"documentChunk": {"documentIndex": 0, "start": 0, "end": 1}},
}
CITED: dict[str, Json] = {
    "char": {"type": "char_location", "document_index": 0, "start_char_index": 3, "end_char_index": 9},
    "page": {"type": "page_location", "document_index": 1, "start_page_number": 2, "end_page_number": 3},
    "content_block": {
        "type": "content_block_location",
        "document_index": 0,
        "start_block_index": 0,
        "end_block_index": 1,
    },
}


def in_messages(chunks: bytes) -> Json:
    """Return chat's chunks as a message of Messages."""
    for step in translations(CHAT, MESSAGES, {}, ()):
        chunks = step.feed(chunks) + step.end()
    gathering = MESSAGES.answers.gathering()
    for each in events(chunks):
        gathering.take(MESSAGES.answers.read_event(each.data, ()))
    said: Json = msgspec.json.decode(gathering.body())
    return said


def cited(location: Json) -> Json:
    """Return a citation of Converse's."""
    return {"title": "a", "sourceContent": [{"text": "green"}, {"text": "."}], "location": location}


def whole(*content: Json) -> bytes:
    """Return an answer of Converse's in one piece."""
    answer = {"output": {"message": {"content": [*content]}}, "stopReason": "end_turn", "usage": {"inputTokens": 1}}
    return events_of_converse(msgspec.json.encode(answer), ConverseToChat("m", "c1", (), cites=True))


@pytest.mark.parametrize("kind", WHERE)
def test_a_cited_text_is_a_block_with_its_citations(kind: str) -> None:
    said = in_messages(
        whole(
            {"text": "As it says, "},
            {"citationsContent": {"content": [{"text": "grass is green"}], "citations": [cited(WHERE[kind])]}},
            {"text": ". And so on."},
        )
    )
    assert [block["text"] for block in said["content"]] == ["As it says, ", "grass is green", ". And so on."]
    [citation] = said["content"][1]["citations"]
    assert citation == {**CITED[kind], "cited_text": "green.", "document_title": "a", "file_id": None}
    assert not any(block.get("citations") for block in (said["content"][0], said["content"][2]))


def test_it_is_so_in_a_stream() -> None:
    to_chat = ConverseToChat("m", "c1", (), cites=True)
    told: list[tuple[str, Json]] = [
        ("messageStart", {}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "As it "}}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "says, "}}),
        ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"text": "green"}}),
        ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"citation": cited(WHERE["char"])}}),
        ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"citation": cited(WHERE["page"])}}),
        ("contentBlockStop", {"contentBlockIndex": 1}),
        ("messageStop", {"stopReason": "end_turn"}),
        ("metadata", {"usage": {"inputTokens": 1}}),
    ]
    chunks = to_chat.feed(
        FrameMessage({":message-type": "event", ":event-type": name}, msgspec.json.encode(event))
        for name, event in told
    )
    said = in_messages(chunks + to_chat.end())
    assert [block["text"] for block in said["content"]] == ["As it says, ", "green"]
    assert [each["type"] for each in said["content"][1]["citations"]] == ["char_location", "page_location"]


def test_an_answer_that_was_not_asked_for_citations_has_no_field_that_chat_does_not_have() -> None:
    """Clients send an answer back as it is: what no API knows of it would be refused."""
    for cites in (False, True):
        answer = {"output": {"message": {"content": [{"text": "a"}, {"text": "b"}]}}, "stopReason": "end_turn"}
        to_chat = ConverseToChat("m", "c1", (), cites=cites)
        chunks = events_of_converse(msgspec.json.encode(answer | {"usage": {"inputTokens": 1}}), to_chat)
        assert (b"content_block" in chunks) == cites
