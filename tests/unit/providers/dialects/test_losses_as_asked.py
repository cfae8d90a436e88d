"""What a translation in two steps loses is named as the client's own request has it."""

from typing import Any

import msgspec
import pytest

from providers.dialects import (
    CHAT,
    GEMINI,
    MESSAGES,
    RESPONSES,
    Dialect,
    Habits,
    Wording,
    as_asked,
    converse_from_chat,
    named_in,
    rendered,
)

SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
TURN = {"role": "user", "parts": [{"text": "Hi"}]}


def said(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


@pytest.mark.parametrize(
    ("source", "target", "asked", "lost"),
    [
        (RESPONSES, MESSAGES, {"input": [{"role": "user", "content": [said("Hear"), SOUND]}]}, "input[0].content[1]"),
        (
            RESPONSES,
            MESSAGES,
            {"instructions": "Be", "input": [{"role": "user", "content": "a"}, {"role": "user", "content": [SOUND]}]},
            "input[1].content[0]",
        ),
        (RESPONSES, MESSAGES, {"input": "Hi", "text": {"verbosity": "low"}}, "text.verbosity"),
        (
            GEMINI,
            MESSAGES,
            {"contents": [TURN], "generationConfig.candidateCount": 2},
            "generationConfig.candidateCount",
        ),
        (GEMINI, MESSAGES, {"contents": [TURN], "generationConfig.seed": 2}, "generationConfig.seed"),
        (
            GEMINI,
            MESSAGES,
            {
                "systemInstruction": {"parts": [{"text": "Be"}]},
                "contents": [
                    TURN,
                    {
                        "role": "user",
                        "parts": [{"text": "a"}, {"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}}],
                    },
                ],
            },
            "contents[1].parts[1]",
        ),
        (
            MESSAGES,
            GEMINI,
            {
                "max_tokens": 9,
                "messages": [{"role": "user", "content": "Hi"}],
                "metadata": {"user_id": "ann"},
            },
            "metadata.user_id",
        ),
    ],
)
def test_a_loss_of_the_second_step_is_named_as_the_client_wrote_it(
    source: Dialect, target: Dialect, asked: dict[str, Any], lost: str
) -> None:
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in asked.items()}
    assert lost in [loss.field for loss in rendered(raw, source, target, Habits()).losses]


def test_a_picture_that_a_tool_showed_is_not_all_of_the_prompt() -> None:
    picture = {"type": "input_image", "image_url": "https://example.com/a.png"}
    asked = [
        {"role": "user", "content": "Hi"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [picture]},
    ]
    wording = rendered({"input": msgspec.Raw(msgspec.json.encode(asked))}, RESPONSES, CHAT, Habits())
    losses = as_asked(converse_from_chat(wording.fields, "amazon.nova-pro-v1:0").losses, RESPONSES, wording)
    assert [loss.field for loss in losses if not loss.hint] == ["input[2].output[0]"]


def test_so_is_what_converse_has_no_words_for() -> None:
    turn = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    asked = {
        "max_tokens": 9,
        "system": "Be",
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, turn]},
        ],
    }
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in asked.items()}
    wording = rendered(raw, MESSAGES, CHAT, Habits())
    losses = as_asked(converse_from_chat(wording.fields, "amazon.nova-pro-v1:0").losses, MESSAGES, wording)
    assert [loss.field for loss in losses] == ["messages[1].content[1]"]


@pytest.mark.parametrize("target", [MESSAGES, GEMINI, RESPONSES])
@pytest.mark.parametrize("kind", ["text", "refusal"])
def test_what_an_sdk_repeats_of_an_answer_in_its_parts_keeps_nobody_out(target: Dialect, kind: str) -> None:
    """As OpenAI's Agents SDK for JavaScript sends an answer back in chat completions (0.20.0)."""
    asked = {"model": "m", "max_tokens": 99}
    begun = {"role": "user", "content": "Hi"}
    part = {"type": kind, kind: "Hello"}
    repeated: dict[str, Any] = {"role": "assistant", "annotations": [], "tool_calls": [{"id": "a"}]}
    repeated["reasoning_content"] = "Hm"

    def wording(**more: Any) -> Wording:
        said = [begun, {"role": "assistant", "content": [{**part, **more}]}, begun]
        raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in {**asked, "messages": said}.items()}
        return rendered(raw, CHAT, target, Habits())

    assert wording(**repeated).fields == wording().fields
    losses = as_asked(wording(**repeated).losses, CHAT, wording())
    assert [(loss.field, loss.hint) for loss in losses] == [("messages[1].content[0].reasoning_content", True)]
    assert [loss.hint for loss in wording(made_up=1).losses] == [False]


@pytest.mark.parametrize(
    ("source", "target", "asked", "refused", "named"),
    [
        (RESPONSES, CHAT, {"text": {"verbosity": "low"}}, "verbosity", "text.verbosity"),
        (RESPONSES, MESSAGES, {"text": {"format": {}}}, "output_config.format", "text.format"),
        (MESSAGES, CHAT, {"metadata": {"user_id": "ann"}}, "user", "metadata.user_id"),
        (MESSAGES, RESPONSES, {"stop_sequences": ["x"]}, "stop", "stop_sequences"),
        (MESSAGES, GEMINI, {"tool_choice": {}}, "toolConfig.functionCallingConfig", "tool_choice"),
        (MESSAGES, RESPONSES, {"thinking": {}}, "reasoning.effort", "thinking"),
        (GEMINI, CHAT, {"generationConfig.maxOutputTokens": 9}, "max_tokens", "generationConfig.maxOutputTokens"),
        (CHAT, GEMINI, {"n": 2}, "generationConfig.candidateCount", "n"),
        (CHAT, MESSAGES, {"top_p": 0.5}, "top_p", "top_p"),
        (RESPONSES, RESPONSES, {"text": {}}, "text.verbosity", "text.verbosity"),
    ],
)
def test_what_a_deployment_refuses_is_named_as_its_client_asked(
    source: Dialect, target: Dialect, asked: dict[str, Any], refused: str, named: str
) -> None:
    fields = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in asked.items()}
    assert named_in(source, target, fields, refused) == named
