"""The classes by which figures of deployments are separated: the API, and the size of the prompt.

The time of an image says nothing about the first token of an answer, nor that of a short prompt about a long one.
Ledger rows and the board have a class as one number that is the same in every version: ten times the API's, plus the
size.
"""

from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType

import msgspec


class MeasuredApi(StrEnum):
    """An API with separate figures; those besides ``ANSWERS`` are named after their endpoints."""

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
    WHOLE = "answers.whole"  # answers that their providers do not stream: measured to their end
    UNKNOWN = "unknown"  # of a later version


# Must never change: rows and boards have them. The ledger's views leave out 10 and above.
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
})  # fmt: skip
_APIS = MappingProxyType({number: api for api, number in _NUMBERS.items()})
_SIZES = 10  # the number of sizes that fit between two APIs
_CLASSES_KNOWN = 1024


class PromptClass(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The class of one call, by which figures are separated."""

    api: MeasuredApi
    size: int  # 0, 1, 2: body <= 4 KB, <= 32 KB, larger

    @property
    def is_answer(self) -> bool:
        """Whether the call is for an answer in tokens, not for embeddings, images or audio."""
        return self.api is MeasuredApi.ANSWERS

    @property
    def is_sampled(self) -> bool:
        """Whether its response time counts for steering: a fast token count does not mean fast answers."""
        return self.api is not MeasuredApi.COUNT_TOKENS


def answer_class(size: int) -> PromptClass:
    """Return the class of calls for answers with a prompt of size class ``size``."""
    return PromptClass(MeasuredApi.ANSWERS, size)


def whole_class(prompt_class: PromptClass) -> PromptClass:
    """Return the class of an attempt at a call of ``prompt_class`` whose answer its provider does not stream."""
    return PromptClass(MeasuredApi.WHOLE, prompt_class.size)


def encoded_api(api: MeasuredApi) -> int:
    """Return the number of ``api`` on the board.

    Raises:
        KeyError: it is unknown.

    """
    return _NUMBERS[api]


def decoded_api(number: int) -> MeasuredApi:
    """Return the API with this number."""
    return _APIS.get(number, MeasuredApi.UNKNOWN)


def encoded_class(prompt_class: PromptClass) -> int:
    """Return the number of a class in ledger rows and on the board.

    Raises:
        KeyError: its API is unknown.

    """
    return _NUMBERS[prompt_class.api] * _SIZES + prompt_class.size


@lru_cache(maxsize=_CLASSES_KNOWN)
def decoded_class(number: int) -> PromptClass:
    """Return the class with this number."""
    api, size = divmod(number, _SIZES)
    return PromptClass(decoded_api(api), size)
