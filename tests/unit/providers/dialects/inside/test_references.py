"""References of earlier answers, sent back: they keep no deployment out, and no API gets one that it did not make."""

from typing import Any

import msgspec
import pytest

from providers.bodies import events
from providers.dialects import CHAT, GEMINI, MESSAGES, RESPONSES, Dialect, Habits, rendered, translations
from providers.dialects.messages.thoughts import without_foreign

ASK = {"role": "user", "content": "Hi"}
CITATION = {"type": "url_citation", "url_citation": {"url": "https://example.com", "title": "A"}}
FOUND = {"type": "web_search_result_location", "url": "https://example.com", "title": "A", "cited_text": ""}


def raw(**fields: Any) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}


@pytest.mark.parametrize("target", [MESSAGES, GEMINI])
@pytest.mark.parametrize(("annotation", "is_hint"), [(CITATION, True), ({"type": "url_citation"}, False)])
def test_an_answers_references_may_be_lost_when_it_is_sent_back(
    target: Dialect, annotation: Any, is_hint: bool
) -> None:
    said = {"role": "assistant", "content": "A", "annotations": [annotation]}
    wording = rendered(raw(model="m", messages=[ASK, said, ASK]), CHAT, target, Habits())
    assert [(loss.field, loss.hint) for loss in wording.losses] == [("messages[1].annotations", is_hint)]


def test_citations_of_another_vendors_search_are_not_sent_to_anthropic() -> None:
    document = {"type": "char_location", "cited_text": "x", "document_index": 0}
    own = {**FOUND, "encrypted_index": "e"}
    blocks = [{"type": "text", "text": "A", "citations": [{**FOUND, "encrypted_index": ""}, document, own]}]
    asked = raw(messages=[ASK, {"role": "assistant", "content": blocks}, ASK])
    wording = without_foreign(asked)
    kept = msgspec.json.decode(wording.fields["messages"])[1]["content"][0]["citations"]
    assert kept == [document, own]
    assert [(loss.field, loss.hint) for loss in wording.losses] == [("messages[1].content[0].citations", True)]
    assert without_foreign(wording.fields).fields is wording.fields


PAGE = "https://example.com"
CALL = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
DONE = b"data: [DONE]\n\n"


def chunk(delta: dict[str, Any] | None, reason: str | None = None, **beside: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": reason}]
    said = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **beside}
    return b"data: " + msgspec.json.encode(said) + b"\n\n"


def told(client: Dialect, *stream: bytes) -> tuple[bytes, bytes]:
    """Return a chat stream as such a client hears it, streamed and whole."""
    [step] = translations(CHAT, client, {}, ())
    said = b"".join([*map(step.feed, stream), step.end()])
    gathering = client.answers.gathering()
    for event in events(said):
        gathering.take(client.answers.read_event(event.data, ()))
    return said, gathering.body()


@pytest.mark.parametrize("client", [MESSAGES, RESPONSES, GEMINI])
@pytest.mark.parametrize("done", [DONE, b""])
@pytest.mark.parametrize("reason", ["stop", "length"])
@pytest.mark.parametrize(
    "late",
    [
        chunk({"annotations": [CITATION]}),
        chunk(None, citations=[PAGE], usage={"prompt_tokens": 1, "completion_tokens": 1}),
        chunk({}, search_results=[{"title": "A", "url": PAGE}]),
    ],
    ids=["annotations", "with the usage", "results of a search"],
)
def test_references_behind_the_finish_reason_are_told_of_the_text(
    client: Dialect, late: bytes, reason: str, done: bytes
) -> None:
    said, whole = told(client, chunk({"content": "Hel"}), chunk({"content": "lo"}), chunk({}, reason), late, done)
    assert (whole.count(b"Hello"), PAGE.encode() in whole) == (1, True)
    assert said.count(b"event: content_block_start") == (client is MESSAGES)
    assert said.count(b"event: response.output_item.added") == (client is RESPONSES)


@pytest.mark.parametrize("client", [MESSAGES, RESPONSES, GEMINI])
def test_references_before_the_text_are_told_of_it(client: Dialect) -> None:
    stream = [chunk({"annotations": [CITATION]}), chunk({"content": "Hello"}), chunk({}, "stop"), DONE]
    said, whole = told(client, *stream)
    assert (whole.count(b"Hello"), PAGE.encode() in whole) == (1, True)
    assert said.count(b"event: response.output_item.added") == (client is RESPONSES)


def test_references_behind_a_call_make_no_empty_message() -> None:
    late = chunk({"annotations": [CITATION]}, "tool_calls")
    said, _ = told(RESPONSES, chunk({"content": "Hello"}), chunk({"tool_calls": [CALL]}), late, DONE)
    assert said.count(b"event: response.output_item.added") == 2


@pytest.mark.parametrize("client", [MESSAGES, RESPONSES, GEMINI])
@pytest.mark.parametrize(
    "stream",
    [
        [chunk({"content": "Hello", "tool_calls": [CALL]}, "tool_calls", citations=[PAGE])],
        [chunk({"content": "Hello"}, citations=[PAGE]), chunk({"reasoning_content": "Hm."}), chunk({}, "stop")],
        [chunk({"content": "Hel"}, citations=["https://a.b"]), chunk({"content": "lo"}, "stop", citations=[PAGE])],
    ],
    ids=["a call", "a thought", "another reference"],
)
def test_what_follows_a_text_takes_no_reference_from_it(client: Dialect, stream: list[bytes]) -> None:
    _, whole = told(client, *stream, DONE)
    assert PAGE.encode() in whole


def test_references_beside_the_choices_of_all_chunks_are_in_a_whole_answer() -> None:
    gathering = CHAT.answers.gathering()
    for each in (["https://a.b"], ["https://a.b", PAGE], [PAGE]):
        gathering.take(CHAT.answers.read_event(chunk({"content": "a"}, citations=each)[len(b"data: ") :].strip(), ()))
    assert msgspec.json.decode(gathering.body())["citations"] == ["https://a.b", PAGE]


def test_references_stay_where_the_numbers_in_the_text_say_that_they_are() -> None:
    """Perplexity's texts have ``[3]`` for the third of them."""
    for told in ([["a", "b", "a", "c"]] * 2, [["a", "b"], ["a", "b", "a", "c"]]):
        gathering = CHAT.answers.gathering()
        for each in told:
            gathering.take(
                CHAT.answers.read_event(chunk({"content": "a"}, citations=each)[len(b"data: ") :].strip(), ())
            )
        assert msgspec.json.decode(gathering.body())["citations"] == ["a", "b", "a", "c"]
