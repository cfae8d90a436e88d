"""What figures of deployments are kept apart by: the API that was called, and the size of the prompt.

How soon a picture comes says nothing of the first token of an answer, nor does a short prompt of a long one. In rows of
the ledger and on the board a class is one number, which every version reads alike: ten times the API's, plus the size.
"""

from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType

import msgspec


class MeasuredApi(StrEnum):
    """An API as far as its figures are kept apart; the others are named as their endpoints."""

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
    UNKNOWN = "unknown"  # of a later version


# Never to be changed: rows and boards have them. The ledger's views leave out what is ten or more.
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
})  # fmt: skip
_APIS = MappingProxyType({number: api for api, number in _NUMBERS.items()})
_SIZES = 10  # that a number has room for, of each API
_CLASSES_KNOWN = 1024


class PromptClass(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The class of one call, a key wherever figures are kept apart."""

    api: MeasuredApi
    size: int  # 0, 1, 2: body <= 4 KB, <= 32 KB, larger

    @property
    def is_answer(self) -> bool:
        """Whether the call is for an answer of so many tokens, not for whole vectors, pictures or sound."""
        return self.api is MeasuredApi.ANSWERS

    @property
    def is_sampled(self) -> bool:
        """Whether how soon it is answered counts: whoever counts tokens fast answers no sooner."""
        return self.api is not MeasuredApi.COUNT_TOKENS


def answer_class(size: int) -> PromptClass:
    """Return the class of calls for answers whose prompts are of the size class ``size``."""
    return PromptClass(MeasuredApi.ANSWERS, size)


def encoded_api(api: MeasuredApi) -> int:
    """Return the number of ``api`` on the board.

    Raises:
        KeyError: it is unknown.

    """
    return _NUMBERS[api]


def decoded_api(number: int) -> MeasuredApi:
    """Return the API that ``encoded_api`` gave this number."""
    return _APIS.get(number, MeasuredApi.UNKNOWN)


def encoded_class(prompt_class: PromptClass) -> int:
    """Return the number that rows of the ledger and the board have for a class.

    Raises:
        KeyError: its API is unknown.

    """
    return _NUMBERS[prompt_class.api] * _SIZES + prompt_class.size


@lru_cache(maxsize=_CLASSES_KNOWN)
def decoded_class(number: int) -> PromptClass:
    """Return the class that ``encoded_class`` gave this number."""
    api, size = divmod(number, _SIZES)
    return PromptClass(decoded_api(api), size)
