"""What a dialect is: one of the APIs in which answers are asked for and streamed, with all there is to its wire format.

Each has a folder beside this file and is one ``Dialect``; ``index.py`` lists them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from providers.dialects.chunk import Chunk
from providers.dialects.continuing import Continuing
from providers.dialects.expected import JsonFormat, OfferedTool
from providers.dialects.gathering import Gathering
from providers.dialects.habits import Habits
from providers.dialects.parameters import ParameterNames, SystemPrompt
from providers.dialects.pattern import Pattern
from providers.dialects.wording import Fields, Wording

ReadEvent = Callable[[bytes, Sequence[str]], Chunk]


class Translation(Protocol):
    """Translates the event stream of one answer into another dialect."""

    @property
    def finishing(self) -> bool:
        """Whether the source has said how the answer ends, and the target has no end yet: ``end`` would return it."""

    def feed(self, block: bytes) -> bytes:
        """Translate whole events; return events of the target, ``b""`` if none can be sent yet.

        Raises:
            UpstreamError: an event is malformed, or is the provider's error.

        """

    def end(self) -> bytes:
        """Return the events that are still to be sent when the source has ended, complete or not.

        An answer that broke off gets no end here either, so that the reader notices.
        """


class ToChat(Protocol):
    """Translates a request into a chat completion."""

    def __call__(self, fields: Fields, *, thoughts: bool = False) -> Wording:
        """Return the request; with ``thoughts``, earlier reasoning is sent again as ``reasoning_content``.

        Raises:
            Malformed: the request is not valid in its own dialect.

        """


class RequestFormat(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What is known of a request's fields, those at the top level of its body."""

    prompt: str  # the field with the prompt
    reading_order: tuple[str, ...]  # the fields of the prompt in the order in which models read, and cache, them
    parameters: ParameterNames
    system: SystemPrompt | None = None  # None: there is no system prompt
    effort: str | None = None  # the field with the reasoning effort
    choices: str | None = None  # the field with the number of answers; None: there is one
    decoded: frozenset[str] = frozenset()  # fields that are decoded into objects, so that their length is limited
    essential: frozenset[str] = frozenset()  # fields that are never dropped: they are part of the prompt
    json_formats: Mapping[str, Callable[[msgspec.Raw], JsonFormat | None]] = {}  # by field; None: no JSON is wanted
    tools: Mapping[str, Callable[[msgspec.Raw], Iterable[OfferedTool]]] = {}  # by field
    takes_quirks: bool = False  # vendors' quirks apply: its parameters are OpenAI's
    # Removes reasoning of other providers' models from a conversation; None: providers accept it.
    without_foreign_thoughts: Callable[[Fields], Wording] | None = None


class AnswerFormat(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """How answers are streamed, and how a stream and a whole answer become each other."""

    read_event: ReadEvent
    texts: Callable[[bytes], Iterable[tuple[int, str]]]  # of one event's data, with the choice or item of each
    events_of_answer: Callable[[bytes, Sequence[str]], bytes]  # from a whole JSON answer and the secrets to mask
    gathering: Callable[[], Gathering]
    ending: bytes  # the last event, sent where a provider stops after the finish reason
    failure: Callable[[str, str], bytes]  # from an error's kind and message to its event
    numbered: Callable[[bytes, bytes], bytes] | None = None  # from a failure and the events before it; None: no numbers
    keep_alive: bytes = b": keep-alive\n\n"  # sent while a client waits for the first event
    cut_short: frozenset[str]  # finish reasons: a limit was reached
    refusals: frozenset[str] = frozenset()  # finish reasons: the model or a filter refused
    # Learns from an event the pattern by which similar events are recognised without parsing; None: all are parsed.
    learned: Callable[[bytes, Chunk], Pattern | None] | None = None
    repairs: Callable[[frozenset[str]], Sequence[Translation]] | None = None  # by their names in vendors' quirks


class Pivoting(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The translations to and from chat, by which any dialect is translated into any other."""

    to_chat: ToChat
    from_chat: Callable[[Fields, Habits], Wording]
    stream_to_chat: Callable[[Sequence[str]], Translation]  # takes the secrets that are masked in errors
    stream_from_chat: Callable[[Fields, Sequence[str]], Translation]  # takes the client's request as well
    # From a model's name, its longest answer in tokens (None: unknown) and habits to its habits in this dialect.
    habits_of: Callable[[str, int | None, Habits], Habits] | None = None


class Dialect(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One dialect. There is one instance of each, so they are compared by identity."""

    name: str  # in the configuration
    path: str  # below a provider's base URL, and below /v1 of the gateway
    endpoint: str  # the name of its calls in the ledger. Never change it: rows have it
    requests: RequestFormat
    answers: AnswerFormat
    continuing: Continuing | None = None  # None: an answer that broke off cannot be continued by another provider
    continues_by_itself: bool = False  # whoever has this API continues what it is sent
    pivoting: Pivoting | None = None  # None: it is chat itself, or cannot be translated
    untranslated: str | None = None  # why it cannot be translated
    # From an error's HTTP status, type ("": by the status), message and request id to its body; None: OpenAI's shape.
    error_body: Callable[[int, str, str, str | None], bytes] | None = None

    def __repr__(self) -> str:
        return f"Dialect({self.name!r})"
