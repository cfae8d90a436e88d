"""Every dialect with all that is needed to speak it, and the ways from one to another."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from providers.dialects.chat import answers as chat_answers
from providers.dialects.chat import events as chat_events
from providers.dialects.completions import answers as completions_answers
from providers.dialects.completions import events as completions_events
from providers.dialects.completions import requests as completions_requests
from providers.dialects.dialect import Dialect, ReadEvent, Translation
from providers.dialects.messages import answers as messages_answers
from providers.dialects.messages import events as messages_events
from providers.dialects.messages import requests as messages_requests
from providers.dialects.messages import streams as messages_streams
from providers.dialects.messages.habits import Habits
from providers.dialects.responses import answers as responses_answers
from providers.dialects.responses import events as responses_events
from providers.dialects.responses import requests as responses_requests
from providers.dialects.responses import streams as responses_streams
from providers.dialects.wording import Loss, Wording

Fields = Mapping[str, msgspec.Raw]


class ToChat(Protocol):
    """Words a request as a chat completion."""

    def __call__(self, fields: Fields, *, thoughts: bool = False) -> Wording:
        """Return the request; with ``thoughts``, what the model thought before is said again."""


class EventCodec(msgspec.Struct, frozen=True):
    """How one dialect's answers are read, ended and broken off."""

    read_event: ReadEvent
    events_of_answer: Callable[[bytes, Sequence[str]], bytes]  # a whole answer in JSON, as the stream that says it
    ending: bytes  # of a stream that has said why it is over, but not that it is
    failure: Callable[[str, str], bytes]  # the event of an error, of its kind and message


CODECS: Mapping[Dialect, EventCodec] = {
    Dialect.CHAT: EventCodec(
        chat_events.read_event, chat_answers.events_of_answer, chat_answers.ENDING, chat_answers.failure
    ),
    Dialect.COMPLETIONS: EventCodec(
        completions_events.read_event, completions_answers.events_of_answer, chat_answers.ENDING, chat_answers.failure
    ),
    Dialect.MESSAGES: EventCodec(
        messages_events.read_event,
        messages_answers.events_of_answer,
        messages_answers.ENDING,
        messages_answers.failure,
    ),
    Dialect.RESPONSES: EventCodec(
        responses_events.read_event,
        responses_answers.events_of_answer,
        responses_answers.ENDING,
        responses_answers.failure,
    ),
}

_TO_CHAT: Mapping[Dialect, ToChat] = {
    Dialect.COMPLETIONS: completions_requests.to_chat,
    Dialect.MESSAGES: messages_requests.to_chat,
    Dialect.RESPONSES: responses_requests.to_chat,
}
_EFFORT: Mapping[Dialect, str] = {  # where a request says how hard to think
    Dialect.CHAT: "reasoning_effort",
    Dialect.MESSAGES: "thinking",
    Dialect.RESPONSES: "reasoning.effort",
}
_STREAM_TO_CHAT: Mapping[Dialect, Callable[[Fields, Sequence[str]], Translation]] = {
    Dialect.MESSAGES: messages_streams.ToChat,
    Dialect.RESPONSES: lambda asked, _: responses_streams.ToChat(asked),  # tells of errors, and raises none
}
_STREAM_FROM_CHAT: Mapping[Dialect, Callable[[Fields, Sequence[str]], Translation]] = {
    Dialect.MESSAGES: messages_streams.FromChat,
    Dialect.RESPONSES: lambda asked, _: responses_streams.FromChat(asked),
}


def rendered(fields: Fields, source: Dialect, target: Dialect, habits: Habits) -> Wording:
    """Return a request of ``source`` as ``target`` says it, by way of chat; ``habits`` are those of who is asked.

    Raises:
        Malformed: it is not what ``source`` demands.

    """
    wording = Wording(fields)
    if source is target:
        return wording
    if source is not Dialect.CHAT:
        wording = _TO_CHAT[source](fields, thoughts=target is Dialect.CHAT and habits.takes_thoughts)
    if not habits.thinks and "reasoning_effort" in wording.fields:
        loss = Loss(_EFFORT[source], "this model has no reasoning, and would refuse it", hint=True)
        rest = {name: value for name, value in wording.fields.items() if name != "reasoning_effort"}
        wording = Wording(rest, (*wording.losses, loss))
    if target is not Dialect.CHAT:
        second = _from_chat(wording.fields, target, habits)
        wording = Wording(second.fields, (*wording.losses, *second.losses))
    return wording


def _from_chat(fields: Fields, target: Dialect, habits: Habits) -> Wording:
    if target is Dialect.MESSAGES:
        return messages_requests.from_chat(
            fields,
            default_max_tokens=habits.max_tokens,
            adaptive_thinking=habits.adaptive_thinking,
            sampling=habits.sampling,
        )
    if target is Dialect.RESPONSES:
        return responses_requests.from_chat(fields)
    return completions_requests.from_chat(fields)


def translations(source: Dialect, target: Dialect, asked: Fields, secrets: Sequence[str]) -> list[Translation]:
    """Return what turns an answer in ``source`` into one in ``target``, the dialect of the request ``asked``.

    ``secrets`` are masked in what an error says.
    """
    if source is target:
        return []
    steps: list[Translation] = []
    if source is not Dialect.CHAT:
        steps.append(_STREAM_TO_CHAT[source](asked, secrets))
    if target is not Dialect.CHAT:
        steps.append(_STREAM_FROM_CHAT[target](asked, secrets))
    return steps
