"""Chat as one of the dialects: all others are translated into chat."""

import re
from collections.abc import Iterator
from functools import partial

import msgspec

from providers.dialects import events
from providers.dialects.cache_marks import with_breakpoints, with_marks
from providers.dialects.chat.allowed_tools import offering_those_alone
from providers.dialects.chat.answers import ENDING, ChatGathering, answer_of_refusal, events_of_answer, failure
from providers.dialects.chat.continuing import EFFORTS, ChatContinuing, repairs_of
from providers.dialects.chat.custom_tools import as_functions, custom_names, has_texts
from providers.dialects.chat.events import choices, read_event
from providers.dialects.chat.forced_call import asked_for_json, forbids_thinking, forced_in_chat, without_thinking
from providers.dialects.chat.one_call import wants_one_call
from providers.dialects.dialect import (
    AnswerFormat,
    CacheMarking,
    Dialect,
    EarlierThoughts,
    OmissibleFields,
    ParameterNames,
    RequestFormat,
    SystemPrompt,
    ThinkingFields,
    ToolFields,
    VendorsDiffer,
    json_format,
    openai_tools,
)
from providers.dialects.histories import chat_history, without_bound_reasoning, without_sealed, without_system
from providers.dialects.plain_schemas import with_plain
from providers.dialects.wording import PLAIN, Fields, Loss, Wording

# How plain events of a chat stream are recognised: events that only add content.

learned = partial(events.learned, opening=re.compile(rb'"content": ?"'))  # the bytes before the text


# The text that one event of a chat's stream adds to the answer.


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    index: int | None = None


class _Event(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None


_events = msgspec.json.Decoder(_Event)


def texts(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield the text of each choice, with its index.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: the event has another format.

    """
    for choice in _events.decode(data).choices or ():
        if choice.delta is not None and choice.delta.content:
            yield choice.index or 0, choice.delta.content


_THINKING = frozenset(
    {"chat_template_kwargs.enable_thinking", "enable_thinking", "include_reasoning", "reasoning", "reasoning_effort"}
    | {"reasoning_format", "thinking", "thinking_budget"}
)
# How hard to think: OpenAI's field, and the fields of OpenRouter, DeepSeek, Z.ai and others.

_NO_EFFORT = frozenset({b"null", b'"none"', b'{"type":"disabled"}', b'{"type": "disabled"}'})


def without_effort(fields: Fields) -> Wording:
    """Return a chat request that does not say how hard to think."""
    said = [name for name in EFFORTS if name in fields]
    losses = tuple(Loss(name, PLAIN, hint=True) for name in said if bytes(fields[name]) not in _NO_EFFORT)
    return Wording({name: value for name, value in fields.items() if name not in said}, losses)


CHAT = Dialect(
    name="chat",
    path="chat/completions",
    endpoint="chat.completions",
    requests=RequestFormat(
        prompt="messages",
        reading_order=("tools", "messages"),
        parameters=ParameterNames(answer_limits=("max_completion_tokens", "max_tokens")),
        system=SystemPrompt("messages", lambda text: {"role": "system", "content": text}),
        choices="n",
        decoded=(
            frozenset({"logit_bias", "metadata", "modalities", "response_format", "stop", "stream_options"})
            | {"tool_choice", "tools"}
        ),
        json_formats={"response_format": json_format},
        storing="store",
        thinking=ThinkingFields(
            effort="reasoning_effort",
            paths=_THINKING,  # ``thinking``, ``reasoning``, … are vendors' own
            fields=frozenset(EFFORTS),
            without_effort=without_effort,
            forbids=forbids_thinking,
            forbidding=without_thinking,
        ),
        omissible=OmissibleFields(
            fields=(
                _THINKING
                | {"metadata", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"}
                | {"stream_options.include_obfuscation", "user", "verbosity"}
            ),
        ),
        tools=ToolFields(
            offered={"tools": openai_tools, "functions": openai_tools},  # functions: the deprecated name
            one_call=wants_one_call,
            forced=forced_in_chat,
            unforced=asked_for_json,
            offering=offering_those_alone,
            custom_names=custom_names,
            has_texts=has_texts,
            as_functions=as_functions,
        ),
        vendors=VendorsDiffer(
            takes_quirks=True,
            takes_rules=True,
            with_history=chat_history,
            with_plain_schemas=partial(with_plain, tools=("tools", "functions"), formats=("response_format",)),
            without_system=without_system,
        ),
        marks=CacheMarking(
            with_marks=with_marks,
            with_breakpoints=with_breakpoints,
        ),
        thoughts=EarlierThoughts(
            without_sealed=without_sealed,
            without_bound=without_bound_reasoning,
            without_those=without_bound_reasoning,
        ),
    ),
    answers=AnswerFormat(
        read_event=read_event,
        texts=texts,
        choices=choices,
        events_of_answer=events_of_answer,
        gathering=ChatGathering,
        ending=ENDING,
        failure=failure,
        learned=learned,
        repairs=repairs_of,
        of_refusal=answer_of_refusal,
    ),
    continuing=ChatContinuing(),
)
