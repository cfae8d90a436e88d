"""Words of refusals about the limit of an answer: too low, or more than the context holds beside the prompt."""

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from providers.refusals.learnt import LEAST_ROOM, Fact, Kind

# The limit of the answer is too low: Azure, in chat (dotnet/extensions/issues/6945), and OpenRouter, which asks vendors
# in Responses (vectorize-io/hindsight/issues/58); read on 2026-11-29.
_LEAST_ANSWERS = re.compile(
    r"\bmax_(?:completion_|output_)?tokens['\"`]?[^;!?\n]{0,40}\b(?:expected a value >=|must be (?:at least|>=)"
    r"|(?:must|should) be greater than or equal to) ?(\d{1,4})\b",
    re.IGNORECASE,
)
_MOST_OF_LEAST = 256  # tokens; a larger minimum is of something else, such as a budget of thoughts
# The prompt leaves less room in the context: vLLM (claude-code-best/claude-code/issues/272), OpenAI and others
# (ChatGPTNextWeb/NextChat/issues/3195), Anthropic, OpenRouter, which names several parts of a prompt
# (BerriAI/litellm/issues/7034), Hugging Face and Together (huggingface/chat-ui/issues/340), Mistral, whose "prompt"
# includes the answer, and SGLang (from memory); TensorRT-LLM, older and newer.
_ROOM = re.compile(
    r"\(\d{1,9} > (?P<context>\d{3,9}) - (?P<prompt>\d{1,9})\)"
    r"|context length is (?P<context_2>\d{3,9}) tokens\W.{0,40}requested \d{1,9} tokens \((?P<prompt_2>\d{1,9}) in "
    r"|context length is (?P<context_4>\d{3,9}) tokens\W.{0,40}requested \d{1,9} output tokens and your prompt contains"
    r" (?:at least )?(?P<prompt_4>\d{1,9})"
    r"|exceed context limit: (?P<prompt_3>\d{1,9}) \+ \d{1,9} > (?P<context_3>\d{3,9})"
    r"|context length is (?P<context_5>\d{3,9}) tokens\W.{0,40}requested about (?P<prompt_5>\d{1,9}) tokens"
    r" \([^()]{0,100}\b(?P<answer>\d{1,9}) in the output\)"
    r"|context length of (?P<context_8>\d{3,9}) tokens\W.{0,40}requested a total of \d{1,9} tokens:"
    r" (?P<prompt_8>\d{1,9}) "
    r"|max_new_tokens`? must be <= (?P<context_6>\d{3,9})\. Given: (?P<prompt_6>\d{1,9}) `?inputs"
    r"|prompt contains (?P<prompt_7>\d{1,9}) tokens\b.{0,30}, too large for model with (?P<context_7>\d{3,9}) maximum"
    r"|prompt length \((?P<prompt_9>\d{1,9})(?:\.0)?\)(?:,| and) query length \(\d{1,9}\)(?: and)? max_tokens"
    r" \(\d{1,9}\) should not exceed max_seq_len \((?P<context_9>\d{3,9})\)",
    re.IGNORECASE,
)
# vLLM stops to count a prompt one token beyond what fits, so the stated total is the context and one. Or vLLM states
# the prompt's characters in place of tokens (renderers/params.py of 0.25.1, read on 2026-11-29). If the answer alone is
# longer than the context, vLLM states only these two.
_UNCOUNTED = re.compile(
    r"context length is (?P<context>\d{3,9}) tokens\W.{0,40}requested (?P<answer>\d{1,9}) output tokens and your prompt"
    r" contains (?:at least \d{1,9} input tokens, for a total of at least (?P<total>\d{3,9})|\d{1,12} characters)"
    r"|tokens=(?P<answer_2>\d{1,9}) cannot be greater than max_model_len=(?:max_total_tokens=)?(?P<context_2>\d{3,9})",
    re.IGNORECASE,
)
_BYTES_PER_TOKEN = 3  # at least, of nearly all prompts
_MOST_BYTES_PER_TOKEN = 6  # of texts: pictures have more


class Room(NamedTuple):
    """How many tokens an answer may have beside the prompt of a request, as a refusal says; false: it says nothing."""

    beside: int = 0  # tokens that the prompt leaves for the answer
    holds: int = 0  # tokens that prompt and answer may have together, by the same words
    context: int = 0  # tokens of the context, if prompt and answer have more and the prompt's are not stated
    least_prompt: int = 0  # the prompt has at least so many of the context's tokens

    def __bool__(self) -> bool:
        return any(self)

    def left_by(self, fields: Mapping[str, msgspec.Raw]) -> int:
        """Return how many tokens of an answer fit beside the prompt of ``fields``; 0: unknown.

        A prompt that the refusal does not count is estimated, rather too long than too short.
        """
        if not self.context:
            return self.beside
        left = self.context - max(size_of(fields) // _BYTES_PER_TOKEN, self.least_prompt * 9 // 8)
        return left if left >= LEAST_ROOM else 0

    def fact_of(self, fields: Mapping[str, msgspec.Raw]) -> Fact | None:
        """Return what the refusal of ``fields`` says about the longest prompt and answer; None: nothing."""
        if self.context:
            return Fact(Kind.ROOM, value=str(_BYTES_PER_TOKEN * 100), tokens=self.context)
        if not self.beside:
            return None
        each = size_of(fields) * 100 // max(1, self.holds - self.beside)
        return Fact(Kind.ROOM, value=str(max(100, min(each, _MOST_BYTES_PER_TOKEN * 100))), tokens=self.holds)


_NO_ROOM = Room()


def least_in(text: str) -> int:
    """Return the least limit of an answer that a server takes, in tokens; 0: the words tell none."""
    match = _LEAST_ANSWERS.search(text)
    return int(match[1]) if match is not None and 1 < int(match[1]) <= _MOST_OF_LEAST else 0


def room_in(text: str) -> Room:
    """Return what a refusal says of the room beside a prompt."""
    match = _UNCOUNTED.search(text)
    if match is not None and (numbers := _numbers(match)).get("total") in {None, numbers["context"] + 1}:
        return Room(context=numbers["context"], least_prompt=max(0, numbers["context"] - numbers["answer"]))
    match = _ROOM.search(text)
    if match is None:
        return _NO_ROOM
    numbers = _numbers(match)
    beside = numbers["context"] - numbers["prompt"] + numbers.get("answer", 0)
    return Room(beside, numbers["context"]) if beside >= LEAST_ROOM else _NO_ROOM


def _numbers(match: re.Match[str]) -> Mapping[str, int]:
    """Return the numbers of the groups that have matched: ``context_2`` counts as ``context``."""
    return {name.partition("_")[0]: int(number) for name, number in match.groupdict().items() if number}


def size_of(fields: Mapping[str, msgspec.Raw]) -> int:
    """Return the bytes of a request."""
    return sum(len(memoryview(value)) for value in fields.values())
