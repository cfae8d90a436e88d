"""The classes by which figures of deployments are separated: API, size of the prompt, effort, and spoken or not.

The time of an image says nothing about the first token of an answer, nor a short prompt's time about a long one's, nor
an immediate answer's about that of an answer after long thinking, nor a first token's about a first clause's. Ledger
rows and the board have a class as one number, the same in every version: ten times the API's, plus the size, plus 3 or
6 for little or much effort.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias

import msgspec


class MeasuredApi(StrEnum):
    """An API with separate figures; all but ``ANSWERS`` are named after their endpoints."""

    ANSWERS = "answers"  # chat, completions, responses and messages: raced, and measured to the first token
    EMBEDDINGS = "embeddings"
    MODERATIONS = "moderations"
    RERANK = "rerank"
    SPEECH = "audio.speech"
    TRANSCRIPTIONS = "audio.transcriptions"
    TRANSLATIONS = "audio.translations"
    GENERATIONS = "images.generations"
    EDITS = "images.edits"
    VARIATIONS = "images.variations"
    COUNT_TOKENS = "messages.count_tokens"
    DECISIONS = "decisions"
    COMPACT = "responses.compact"
    WHOLE = "answers.whole"  # answers not streamed by their providers: measured to their end
    UNKNOWN = "unknown"  # of a later version


class Effort(StrEnum):
    """How much a request for an answer tells the model to think; most requests say nothing."""

    LOW = "low"  # or not at all
    HIGH = "high"  # medium or more, or as the model decides


class Spoken(StrEnum):
    """Answers for a voice, measured to their first clause, by the requests' effort."""

    USUAL = "spoken"  # requests without an effort
    LOW = "spoken.low"
    HIGH = "spoken.high"


# The groups of figures in the policy: an API (of answers: requests without an effort), an effort, or a voice.
Measured: TypeAlias = MeasuredApi | Effort | Spoken


# Must never change, as rows and boards contain the numbers. The ledger's views leave out 10 and above.
_NUMBERS = MappingProxyType({
    MeasuredApi.ANSWERS: 0,
    MeasuredApi.EMBEDDINGS: 1,
    MeasuredApi.MODERATIONS: 2,
    MeasuredApi.RERANK: 3,
    MeasuredApi.SPEECH: 4,
    MeasuredApi.TRANSCRIPTIONS: 5,
    MeasuredApi.TRANSLATIONS: 6,
    MeasuredApi.GENERATIONS: 7,
    MeasuredApi.EDITS: 8,
    MeasuredApi.VARIATIONS: 9,
    MeasuredApi.COUNT_TOKENS: 10,
    MeasuredApi.WHOLE: 11,
    MeasuredApi.DECISIONS: 13,
    MeasuredApi.COMPACT: 14,
})  # fmt: skip
_APIS = MappingProxyType({number: api for api, number in _NUMBERS.items()})
_SIZES = 10  # the number of classes that fit between two APIs
_EFFORTS: tuple[Effort | None, ...] = (None, Effort.LOW, Effort.HIGH)
_OF_EFFORT = 3  # sizes
# Likewise. Versions without effort take these for the numbers of unknown APIs, and leave them out.
_OF_ANSWERS: Mapping[Effort | Spoken, int] = MappingProxyType({
    Effort.LOW: 100,
    Effort.HIGH: 200,
    Spoken.USUAL: 300,
    Spoken.LOW: 400,
    Spoken.HIGH: 500,
})  # fmt: skip
_MEASURED: Mapping[int, Measured] = MappingProxyType({**_APIS, **{n: each for each, n in _OF_ANSWERS.items()}})
_SPOKEN = MappingProxyType({None: Spoken.USUAL, Effort.LOW: Spoken.LOW, Effort.HIGH: Spoken.HIGH})
_CLASSES_KNOWN = 1024


@lru_cache(maxsize=_CLASSES_KNOWN)
def encoded_class(prompt_class: "PromptClass") -> int:
    """Return the number of a class in ledger rows and on the board.

    Raises:
        KeyError: the class's API is unknown

    """
    effort = _OF_EFFORT * _EFFORTS.index(prompt_class.effort)
    return _NUMBERS[prompt_class.api] * _SIZES + effort + prompt_class.size


class PromptClass(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The class of one call, by which figures are separated."""

    api: MeasuredApi
    size: int  # 0, 1, 2: body <= 4 KB, <= 32 KB, larger
    effort: Effort | None = None  # of answers; None: the request does not say
    is_spoken: bool = False  # the first clause wins; rows have the same number, and ``win_on``
    measured: Measured = MeasuredApi.ANSWERS  # computed from the other fields

    def __post_init__(self) -> None:
        """Compute ``measured`` once, as each attempt uses it."""
        measured: Measured = _SPOKEN[self.effort] if self.is_spoken else self.effort or self.api
        msgspec.structs.force_setattr(self, "measured", measured)

    number = property(encoded_class)  # in ledger rows: a known number needs no call in Python

    @property
    def is_answer(self) -> bool:
        """Whether the call is for an answer in tokens, not for embeddings, images or audio."""
        return self.api is MeasuredApi.ANSWERS

    @property
    def is_whole(self) -> bool:
        """Whether the answer, in tokens, comes whole."""
        return self.api is MeasuredApi.WHOLE

    @property
    def is_sampled(self) -> bool:
        """Whether the response time counts for steering: a fast token count does not mean fast answers."""
        return self.api is not MeasuredApi.COUNT_TOKENS


@lru_cache(maxsize=16)  # there are nine
def answer_class(size: int, effort: Effort | None = None) -> PromptClass:
    """Return the class of calls for answers with a prompt of size class ``size`` and such an effort."""
    return PromptClass(MeasuredApi.ANSWERS, size, effort)


@lru_cache(maxsize=16)  # there are nine
def spoken_class(prompt_class: PromptClass) -> PromptClass:
    """Return the class of such calls for answers where the first clause wins."""
    return PromptClass(MeasuredApi.ANSWERS, prompt_class.size, prompt_class.effort, is_spoken=True)


def whole_class(prompt_class: PromptClass) -> PromptClass:
    """Return the class of an attempt at a call of ``prompt_class`` with an answer that its provider does not stream."""
    return PromptClass(MeasuredApi.WHOLE, prompt_class.size)


def encoded_measured(measured: Measured) -> int:
    """Return the number of an API, an effort or a voice in the policy's own figures on the board.

    Raises:
        KeyError: the argument is unknown

    """
    return _NUMBERS[measured] if isinstance(measured, MeasuredApi) else _OF_ANSWERS[measured]


def decoded_measured(number: int) -> Measured:
    """Return the API, the effort or the voice with this number."""
    return _MEASURED.get(number, MeasuredApi.UNKNOWN)


@lru_cache(maxsize=_CLASSES_KNOWN)
def decoded_class(number: int) -> PromptClass:
    """Return the class with this number."""
    of_api, size = divmod(number, _SIZES)
    api = _APIS.get(of_api, MeasuredApi.UNKNOWN)
    if api is MeasuredApi.ANSWERS and size < _OF_EFFORT * len(_EFFORTS):
        effort, size = divmod(size, _OF_EFFORT)
        return PromptClass(api, size, _EFFORTS[effort])
    return PromptClass(api, size)
