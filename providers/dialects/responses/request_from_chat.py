"""Translates a chat completion request into a Responses request."""

from collections.abc import Mapping
from typing import Any

import msgspec

from providers.dialects.responses.fields import Fields, Losses, objects_of
from providers.dialects.responses.messages import Transcript
from providers.dialects.responses.request_to_chat import LOGPROBS, SHARED
from providers.dialects.responses.tools import responses_tool_choice, responses_tools
from providers.dialects.wording import Wording, raw_json

_FEWEST_TOKENS = 16  # the API's minimum of max_output_tokens

_LOST: Mapping[str, tuple[str, tuple[bytes, ...]]] = {  # the reason, and the values that are defaults
    "n": ("Responses gives one answer", (b"1",)),
    "stop": ("Responses has no stop sequences", (b"[]",)),
    "seed": ("Responses takes no seed", ()),
    "frequency_penalty": ("Responses has no penalties", (b"0", b"0.0")),
    "presence_penalty": ("Responses has no penalties", (b"0", b"0.0")),
    "logit_bias": ("Responses takes no logit bias", (b"{}",)),
    "audio": ("Responses has no audio output", ()),
    "modalities": ("Responses answers in text", (b'["text"]',)),
    "web_search_options": ("Responses searches the web with a tool of other options", ()),
    "functions": ("Responses has no functions, only tools", (b"[]",)),
    "function_call": ("Responses has no functions, only tools", (b'"none"', b'"auto"')),
    "store": ("Responses stores for later reference, chat completions for evaluation", (b"false",)),
    "moderation": ("Responses gives the results of moderation in another shape", ()),
}
_NO_SUCH_FIELD = "Responses has no such field"


def from_chat(fields: Mapping[str, msgspec.Raw]) -> Wording:
    """Translate a chat completion request into a Responses request that is not stored.

    Raises:
        Malformed: it has no messages, or a field has another type than the API requires.

    """
    asked, losses = Fields(fields), Losses()
    said: dict[str, Any] = asked.several(*SHARED, "parallel_tool_calls")
    transcript = Transcript(losses)
    for message in objects_of(asked.need("messages"), "messages"):
        transcript.add(message)
    if transcript.instructions is not None:
        said["instructions"] = transcript.instructions
    said["input"] = transcript.items
    said["store"] = False  # the default is true, and a call that is stored is not raced
    if tools := responses_tools(asked.raw("tools"), losses):
        said["tools"] = tools
    choice = responses_tool_choice(asked.raw("tool_choice"), losses)
    if choice is not None and tools:
        said["tool_choice"] = choice
    said |= _limit(asked, losses)
    if text := _text(asked, losses):
        said["text"] = text
    if (effort := asked.raw("reasoning_effort")) is not None:
        said["reasoning"] = {"effort": effort}
    if asked.take("logprobs", bool):
        said["include"] = [LOGPROBS]
        said |= asked.several("top_logprobs")
    asked.lose("top_logprobs", losses, "log probabilities are returned only if logprobs is true", b"0")
    options = asked.inner("stream_options")
    options.pass_over("include_usage")  # Responses always sends usage
    options.lose("include_obfuscation", losses, "translated streams are not padded", b"false", hint=True)
    options.lose_rest(losses, _NO_SUCH_FIELD)
    asked.lose("prediction", losses, "Responses takes no prediction of the answer", hint=True)
    for name, (reason, plain) in _LOST.items():
        asked.lose(name, losses, reason, *plain)
    asked.lose_rest(losses, _NO_SUCH_FIELD)
    return Wording({name: raw_json(value) for name, value in said.items()}, losses.all())


def _limit(asked: Fields, losses: Losses) -> dict[str, Any]:
    limits = {name: asked.take(name, int) for name in ("max_completion_tokens", "max_tokens")}
    given = {name: limit for name, limit in limits.items() if limit is not None}
    if not given:
        return {}
    name, limit = min(given.items(), key=lambda pair: pair[1])
    if limit < _FEWEST_TOKENS:
        losses.add(name, f"Responses generates at least {_FEWEST_TOKENS} tokens")
    return {"max_output_tokens": max(limit, _FEWEST_TOKENS)}


def _text(asked: Fields, losses: Losses) -> dict[str, Any]:
    said: dict[str, Any] = asked.several("verbosity")
    format_ = asked.inner("response_format")
    match kind := format_.take("type", str):
        case "json_schema":
            schema = format_.inner(kind)
            shape = {"name": schema.need("name"), **schema.several("description", "schema", "strict")}
            said["format"] = {"type": kind, **shape}
            schema.lose_rest(losses, _NO_SUCH_FIELD)
        case "json_object":
            said["format"] = {"type": kind}
        case "text" | None:
            pass
        case _:
            losses.add("response_format.type", f"Responses has no format {kind!r}")
    format_.lose_rest(losses, _NO_SUCH_FIELD)
    return said
