"""What a dialect is: one of the APIs in which answers are asked for and streamed, and all that is known of its format.

Each lives in a folder beside this file, as one ``Dialect``; ``index.py`` lists them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from providers.dialects.chunk import Chunk
from providers.dialects.expected import JsonFormat, OfferedTool
from providers.dialects.gathering import Gathering
from providers.dialects.habits import Habits
from providers.dialects.parameters import ParameterNames, SystemPrompt
from providers.dialects.pattern import Pattern
from providers.dialects.wording import Fields, Wording

ReadEvent = Callable[[bytes, Sequence[str]], Chunk]


class Translation(Protocol):
    """Turns one answer's event stream into another dialect's. Use one for each answer."""

    def feed(self, block: bytes) -> bytes:
        """Return what whole events of the source say in the target, ``b""`` while there is nothing to be said yet.

        Raises:
            UpstreamError: an event is malformed, or is the provider's error.

        """

    def end(self) -> bytes:
        """Return what is still to be said when the source has ended, whether or not it was whole.

        An answer that broke off before its end is not given one: the reader of the target must see that it did.
        """


class ToChat(Protocol):
    """Words a request as a chat completion."""

    def __call__(self, fields: Fields, *, thoughts: bool = False) -> Wording:
        """Return the request; with ``thoughts``, what the model thought before is said again.

        Raises:
            Malformed: it is not what the dialect demands.

        """


class RequestFormat(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The fields of a request, at the top level of its body."""

    prompt: str  # the field with the prompt
    reading_order: tuple[str, ...]  # the fields that a model reads, in that order: prompts share a cache by it
    parameters: ParameterNames
    system: SystemPrompt | None = None  # None: it has none
    effort: str | None = None  # where it says how hard to think
    decoded: frozenset[str] = frozenset()  # fields of which objects are made, so that their length must be bounded
    essential: frozenset[str] = frozenset()  # without which it is another question, so that they are never left out
    json_formats: Mapping[str, Callable[[msgspec.Raw], JsonFormat | None]] = {}  # by field; None: not asked for
    tools: Mapping[str, Callable[[msgspec.Raw], Iterable[OfferedTool]]] = {}  # by field
    takes_quirks: bool = False  # it has OpenAI's parameters, which are those that quirks of vendors are about
    # Leaves out the thoughts of other providers' models, where a provider refuses them; None: it does not.
    without_foreign_thoughts: Callable[[Fields], Wording] | None = None


class AnswerFormat(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The events of an answer's stream, and the whole answers that add up to the same."""

    read_event: ReadEvent
    texts: Callable[[bytes], Iterable[tuple[int, str]]]  # that one event's data adds, each with the place it belongs to
    events_of_answer: Callable[[bytes, Sequence[str]], bytes]  # a whole answer in JSON, as the stream that says it
    gathering: Callable[[], Gathering]
    ending: bytes  # of a stream that has said why it is over, but not that it is
    failure: Callable[[str, str], bytes]  # the event of an error, of its kind and message
    keep_alive: bytes = b": keep-alive\n\n"  # says that the answer is still to come
    cut_short: frozenset[str]  # the finish reasons of answers that met a limit
    refusals: frozenset[str] = frozenset()  # those of answers that were refused
    # Learns from an event how others that only add text are recognised without parsing; None: all are parsed.
    learned: Callable[[bytes, Chunk], Pattern | None] | None = None
    repairs: Callable[[frozenset[str]], Sequence[Translation]] | None = None  # by the names that quirks have for them


class Pivoting(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The ways to chat and from chat, by which any two dialects are translated."""

    to_chat: ToChat
    from_chat: Callable[[Fields, Habits], Wording]
    stream_to_chat: Callable[[Sequence[str]], Translation]  # of what is masked in errors
    stream_from_chat: Callable[[Fields, Sequence[str]], Translation]  # also of the request, as the client sent it
    # How a model is asked that can answer with so many tokens at most (None: unknown), where models differ.
    habits_of: Callable[[str, int | None, Habits], Habits] | None = None


class Dialect(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One dialect. There is one of each, so that they are compared by identity."""

    name: str  # in the configuration
    path: str  # below a provider's base URL, and below /v1 of the gateway
    endpoint: str  # what its calls are called in the ledger. Never to be changed: rows have it
    requests: RequestFormat
    answers: AnswerFormat
    pivoting: Pivoting | None = None  # None: it is chat itself, or is not translated
    untranslated: str | None = None  # why it is not
    # An error, of its HTTP status, type ("": by the status), message and request id; None: in OpenAI's shape.
    error_body: Callable[[int, str, str, str | None], bytes] | None = None

    def __repr__(self) -> str:
        return f"Dialect({self.name!r})"
