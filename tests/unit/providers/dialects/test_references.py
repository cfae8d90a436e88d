"""References of earlier answers, sent back: they keep no deployment out, and no API gets one that it did not make."""

from typing import Any

import msgspec
import pytest

from providers.dialects.chat.dialect import CHAT
from providers.dialects.dialect import Dialect, Habits
from providers.dialects.gemini.dialect import GEMINI
from providers.dialects.messages.dialect import MESSAGES, without_foreign
from providers.dialects.translation import rendered

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
