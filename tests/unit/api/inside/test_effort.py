"""How much a request asks the model to think, in the fields of each API and of vendors: a class of its own."""

import msgspec
import pytest

from gateway.api import ParsedRequest, read_chat
from gateway.api.endpoints.completions import read_completion
from gateway.api.endpoints.gemini import read_gemini
from gateway.api.endpoints.messages import read_messages
from gateway.api.endpoints.responses import read_response
from gateway.core.prompt_classes import Effort, answer_class
from gateway.http import Contents

LOW, HIGH = Effort.LOW, Effort.HIGH


def chat(**said: object) -> ParsedRequest:
    return read_chat(_contents(messages=[{"role": "user", "content": "hi"}], **said), None)


def messages(**said: object) -> ParsedRequest:
    return read_messages(_contents(messages=[{"role": "user", "content": "hi"}], max_tokens=9000, **said), None)


def response(**said: object) -> ParsedRequest:
    return read_response(_contents(input="hi", **said), None, store=False)


def gemini(**config: object) -> ParsedRequest:
    turns = [{"role": "user", "parts": [{"text": "hi"}]}]
    return read_gemini(_contents(contents=turns, stream=True, generationConfig=config), None)


def _contents(**body: object) -> Contents:
    return Contents.of(msgspec.json.encode({"model": "m", **body}))


@pytest.mark.parametrize(
    ("asked", "effort"),
    [
        (chat(), None),
        (chat(reasoning_effort=None), None),
        (chat(reasoning_effort="none"), LOW),
        (chat(reasoning_effort="low"), LOW),
        (chat(reasoning_effort="medium"), HIGH),
        (chat(reasoning_effort="high"), HIGH),
        (chat(reasoning_effort="of a later version"), None),
        (chat(reasoning={"effort": "high"}), HIGH),
        (chat(reasoning={"max_tokens": 8000}), HIGH),
        (chat(reasoning={"enabled": False}), LOW),
        (chat(enable_thinking=True), HIGH),
        (chat(enable_thinking=True, thinking_budget=200), LOW),
        (chat(chat_template_kwargs={"enable_thinking": False}), LOW),
        (chat(chat_template_kwargs={"thinking": True, "tools": []}), HIGH),
        (chat(thinking={"type": "enabled"}), HIGH),
        (messages(), None),
        (messages(thinking={"type": "disabled"}), LOW),
        (messages(thinking={"type": "enabled", "budget_tokens": 1024}), LOW),
        (messages(thinking={"type": "enabled", "budget_tokens": 8192}), HIGH),
        (messages(thinking={"type": "adaptive"}), HIGH),
        (messages(thinking={"type": "adaptive"}, output_config={"effort": "low"}), LOW),
        (response(), None),
        (response(reasoning={"effort": "minimal", "summary": "auto"}), LOW),
        (response(reasoning={"effort": "xhigh"}), HIGH),
        (gemini(), None),
        (gemini(thinkingConfig={"thinkingBudget": 0}), LOW),
        (gemini(thinkingConfig={"thinkingBudget": -1, "includeThoughts": True}), HIGH),
        (gemini(thinkingConfig={"thinkingLevel": "HIGH"}), HIGH),
        (gemini(thinking_config={"thinking_level": "low"}), LOW),
    ],
)
def test_the_effort_is_read_from_whatever_field_says_it(asked: ParsedRequest, effort: Effort | None) -> None:
    assert asked.prompt_class == answer_class(0, effort)


def test_a_raw_prompt_may_say_it_too() -> None:
    asked = read_completion(_contents(prompt="hi", chat_template_kwargs={"enable_thinking": False}), None)
    assert asked.prompt_class.effort is LOW


@pytest.mark.parametrize(
    "said", [b"1e999", b"[[]]", b"{}", b'{"effort": {"effort": "high"}}', b"null", b'"' + b"a" * 5000 + b'"']
)
def test_an_effort_in_no_known_form_is_left_to_the_provider(said: bytes) -> None:
    body = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}], "reasoning": %b}' % said
    assert read_chat(Contents.of(body), None).prompt_class.effort is None
