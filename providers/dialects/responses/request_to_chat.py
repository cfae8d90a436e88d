"""Translates a Responses request into a chat completion request."""

from collections.abc import Mapping
from typing import Any

import msgspec

from providers.dialects.responses.fields import Fields, Losses, is_string, objects_of
from providers.dialects.responses.items import Conversation
from providers.dialects.responses.tools import chat_tool_choice, chat_tools
from providers.dialects.wording import Malformed, Wording, raw_json

SHARED = (  # fields with the same name and meaning in both APIs
    "model",
    "stream",
    "temperature",
    "top_p",
    "metadata",
    "service_tier",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
)
LOGPROBS = "message.output_text.logprobs"

_LOST: Mapping[str, tuple[str, bytes]] = {  # the reason, and the value that is the default
    "previous_response_id": ("chat completions keep no earlier responses", b"null"),
    "conversation": ("chat completions keep no conversations", b"null"),
    "prompt": ("chat completions have no prompt templates", b"null"),
    "background": ("chat completions do not run in the background", b"false"),
    "store": ("chat completions keep no response that can be referred to later", b"false"),
    "truncation": ("chat completions do not shorten a conversation that is too long", b'"disabled"'),
    "max_tool_calls": ("chat completions have no hosted tools whose calls could be limited", b"null"),
    "context_management": ("chat completions do not compact a conversation", b"[]"),
    "moderation": ("chat completions give the results of moderation in another shape", b"null"),
}
_AUTO, _NONE = msgspec.Raw(b'"auto"'), msgspec.Raw(b'"none"')
_STATE = ("previous_response_id", "conversation", "prompt")  # with any of them, input is optional
_NO_SUCH_FIELD = "chat completions have no such field"


def to_chat(fields: Mapping[str, msgspec.Raw], *, thoughts: bool = False) -> Wording:
    """Translate a Responses request; with ``thoughts``, earlier reasoning is sent as ``reasoning_content``.

    Raises:
        Malformed: it has no input, or a field has another type than the API requires.

    """
    asked, losses = Fields(fields), Losses()
    said: dict[str, Any] = asked.several(*SHARED)
    conversation = Conversation(losses, thoughts=thoughts)
    said["messages"] = _messages(asked, conversation, optional=any(name in fields for name in _STATE))
    said |= _tools(asked, losses)
    if (limit := asked.raw("max_output_tokens")) is not None:
        said["max_completion_tokens"] = limit
    said |= _text(asked.inner("text"), losses)
    said |= _reasoning(asked.inner("reasoning"), losses)
    said |= _logprobs(asked, losses)
    options = asked.inner("stream_options")
    options.lose("include_obfuscation", losses, "translated streams are not padded", b"false", hint=True)
    options.lose_rest(losses, _NO_SUCH_FIELD)
    asked.lose("client_metadata", losses, "it is information for OpenAI, not for the model", hint=True)
    for name, (reason, plain) in _LOST.items():
        asked.lose(name, losses, reason, plain)
    asked.lose_rest(losses, _NO_SUCH_FIELD)
    return Wording({name: raw_json(value) for name, value in said.items()}, losses.all())


def _messages(asked: Fields, conversation: Conversation, *, optional: bool) -> list[dict[str, Any]]:
    if (instructions := asked.raw("instructions")) is not None:
        if not is_string(instructions):
            raise Malformed("'instructions' must be a string.", "instructions")
        conversation.say("system", instructions)
    given = asked.raw("input") if optional else asked.need("input")
    if given is not None and is_string(given):
        conversation.say("user", given)
    else:
        for item in objects_of(given, "input"):
            conversation.add(item)
    return conversation.messages


def _tools(asked: Fields, losses: Losses) -> dict[str, Any]:
    tools = chat_tools(asked.raw("tools"), losses)
    choice = asked.raw("tool_choice")
    how = asked.several("parallel_tool_calls")
    if not tools:  # chat completions refuse both without tools
        if choice not in (None, _AUTO, _NONE):
            losses.add("tool_choice", "there is no tool to choose that chat completions have")
        return {}
    if (said := chat_tool_choice(choice, losses)) is not None:
        how["tool_choice"] = said
    return {"tools": tools, **how}


def _text(text: Fields, losses: Losses) -> dict[str, Any]:
    said: dict[str, Any] = {}
    format_ = text.inner("format")
    match kind := format_.take("type", str):
        case "json_schema":
            schema = {"name": format_.need("name"), **format_.several("description", "schema", "strict")}
            said["response_format"] = {"type": kind, kind: schema}
        case "json_object":
            said["response_format"] = {"type": kind}
        case "text" | None:
            pass
        case _:
            losses.add("text.format.type", f"chat completions have no format {kind!r}")
    format_.lose_rest(losses, _NO_SUCH_FIELD)
    said |= text.several("verbosity")
    text.lose_rest(losses, _NO_SUCH_FIELD)
    return said


def _reasoning(reasoning: Fields, losses: Losses) -> dict[str, Any]:
    effort = reasoning.raw("effort")
    for name in ("summary", "generate_summary"):
        reasoning.lose(name, losses, "chat completions return reasoning itself, if any, not a summary", hint=True)
    reasoning.lose("context", losses, _NO_SUCH_FIELD, b'"auto"')
    reasoning.lose("mode", losses, _NO_SUCH_FIELD, b'"standard"')
    reasoning.lose_rest(losses, _NO_SUCH_FIELD)
    return {} if effort is None else {"reasoning_effort": effort}


def _logprobs(asked: Fields, losses: Losses) -> dict[str, Any]:
    included = asked.take("include", list[str]) or []
    for number, name in enumerate(included):
        if name == "reasoning.encrypted_content":
            losses.add(f"include[{number}]", "chat completions have no encrypted reasoning", hint=True)
        elif name != LOGPROBS:
            # These add details of hosted tools and of the request's own parts: without either there are none to add.
            losses.add(f"include[{number}]", f"chat completions do not return {name}", hint=True)
    most_likely = asked.take("top_logprobs", int) or 0
    if LOGPROBS not in included and not most_likely:
        return {}
    return {"logprobs": True, **({"top_logprobs": most_likely} if most_likely else {})}
