"""Members of turns and tools that a server refuses by a bare name, without their place."""

import json
from typing import Any

import pytest

from tests.app.gateway.apis.test_dialects import speaking
from tests.app.gateway.refusals.test_refused_fields import ANSWERS, QUESTION, refused, told
from tests.app.gateway.running_gateway import MODEL
from tests.app.gateway.shared_gateway import SharedGateways

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANSWER = {"role": "assistant", "content": [{"type": "text", "text": "a", "citations": None}]}
SCHEMA = {"type": "object", "properties": {"citations": {"default": None}}}
MESSAGES: dict[str, Any] = {
    "max_tokens": 99,
    "messages": [*QUESTION, ANSWER, *QUESTION],
    "tools": [{"type": "custom", "name": "look", "input_schema": SCHEMA}],
}


@pytest.mark.parametrize("words", ["{}: Extra inputs are not permitted", 'json: unknown field "{}"'])
@pytest.mark.parametrize(
    ("name", "written", "dropped"), [("citations", '"citations": null', None), ("type", '"custom"', "tools.type")]
)
async def test_a_null_and_a_tools_kind_are_found_by_a_bare_name(
    shared: SharedGateways, name: str, written: str, dropped: str | None, words: str
) -> None:
    async with shared.row(alpha=None, config={"providers": {"alpha": speaking("messages")}}) as running:
        running["alpha"].answers = lambda sent: (
            refused(words.format(name)) if written in json.dumps(sent) else ANSWERS["messages"]
        )
        for sendings in (2, 3):
            assert await told(running, MESSAGES, "/v1/messages") == (200, dropped)
            assert len(running.received("alpha")) == sendings
        assert running.received("alpha")[-1].body["tools"][0]["input_schema"] == SCHEMA


async def test_a_thought_that_a_google_model_does_not_know_goes_as_a_whole_and_becomes_no_answer(
    shared: SharedGateways,
) -> None:
    parts = [{"text": "hm", "thought": True}, {"text": "Yes", "thought": False}]
    turns = [{"role": "user", "parts": [{"text": "Hi"}]}, {"role": "model", "parts": parts}]
    body = {"contents": [*turns, {"role": "model", "parts": parts[:1]}, turns[0]]}
    said = "Unknown name \"thought\" at 'contents[1].parts[0]': Cannot find field."
    async with shared.row(alpha=None, config={"providers": {"alpha": speaking("gemini")}}) as running:
        running["alpha"].answers = lambda sent: refused(said) if '"thought"' in json.dumps(sent) else ANSWERS["gemini"]
        path = f"/v1beta/models/{MODEL}{running.suffix}:generateContent"
        for sendings in (2, 3):
            assert await told(running, body, path) == (200, "contents.parts.thought")
            assert len(running.received("alpha")) == sendings
        sent = running.received("alpha")[-1].body["contents"]
    assert [each["parts"] for each in sent] == [[{"text": text}] for text in ("Hi", "Yes", "…", "Hi")]
