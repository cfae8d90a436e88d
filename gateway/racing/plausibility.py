"""Which token counts of a provider are impossible: more than its model can have, or fewer than the text needs."""

from functools import lru_cache

import msgspec

from providers import Capabilities, Usage, is_of_tokens

MOST_TOKENS = 10_000_000  # of a prompt, where no context window is known
MOST_ANSWER_TOKENS = 1_000_000  # of an answer, where no limit is known
LONGEST_TOKENS = 128_000  # of the longest usual answer; limits hold so many tokens where no limit of the model is known
MOST_UNITS = {"second": 86_400, "citation": MOST_TOKENS}  # of what is billed besides tokens
MOST_SEARCHES = 1_000  # and of all else: searches, and other calls of a vendor's own tools
# A prompt of text has at most so many tokens a byte, half of which a template may add to messages and tools; and a
# surplus of instructions and search results that a provider adds itself.
TOKENS_PER_BYTE = 2
SURPLUS_TOKENS = 32_768
MOST_BYTES_PER_TOKEN = 40  # of words; with more a count is not of this text
ENVELOPE_BYTES = 512  # of a body, that may be no prompt
LARGEST_REPORTED = 2**53 - 1  # known exactly also to readers of JSON


class MostTokens(msgspec.Struct, frozen=True):
    """The maximum number of tokens of a prompt, and of all answers to it together."""

    prompt: int = MOST_TOKENS
    answer: int = MOST_ANSWER_TOKENS


UNKNOWN_MOST = MostTokens()


@lru_cache(maxsize=4_096)  # asked for each attempt
def most_tokens(capabilities: Capabilities, answers: int = 1) -> MostTokens:
    """Return the maximum of tokens, from the context window and the longest answer where these are known."""
    window, longest = capabilities.context_tokens, capabilities.max_output_tokens
    if not window:
        return MostTokens(answer=min(MOST_TOKENS, MOST_ANSWER_TOKENS * answers))
    both = min(MOST_TOKENS, window + (longest or 0))
    return MostTokens(both, min(MOST_TOKENS, max(both, (longest or both) * answers)))


def plausible(usage: Usage, most: MostTokens, prompt_bytes: int | None = None) -> tuple[Usage, int | None]:
    """Return ``usage`` without impossible counts, and the largest count that was impossible, or None.

    ``prompt_bytes``: the body's length; None if the prompt is not all text in the body (pictures, files, stored items).
    """
    units, beyond = usage.units, 0
    if units is not None:
        units = {unit: min(count, MOST_UNITS.get(unit, _of_tokens_or_calls(unit))) for unit, count in units.items()}
        beyond = max((count for unit, count in (usage.units or {}).items() if count > units[unit]), default=0)
        usage = msgspec.structs.replace(usage, units=units) if beyond else usage
    of_prompt, of_answer = most.prompt, most.answer
    if prompt_bytes is not None:
        of_prompt = min(of_prompt, prompt_bytes * TOKENS_PER_BYTE + SURPLUS_TOKENS)
    prompt, answer = usage.prompt_tokens or 0, usage.completion_tokens or 0
    cached, written, reasoning = usage.cached_tokens or 0, usage.cache_write_tokens or 0, usage.reasoning_tokens or 0
    if max(prompt, cached, written) <= of_prompt and max(answer, reasoning) <= of_answer:
        return usage, min(beyond, LARGEST_REPORTED) or None
    limits = {"completion_tokens": of_answer, "reasoning_tokens": of_answer}
    counts = {name: count for name in _COUNTS if (count := getattr(usage, name)) is not None}
    bounded = {name: min(count, limits.get(name, of_prompt)) for name, count in counts.items()}
    beyond = max(beyond, *(count for name, count in counts.items() if count > bounded[name]))
    return msgspec.structs.replace(usage, **bounded), min(beyond, LARGEST_REPORTED)


def _of_tokens_or_calls(unit: str) -> int:
    return MOST_TOKENS if is_of_tokens(unit) else MOST_SEARCHES


_COUNTS = tuple(name for name in Usage.__struct_fields__ if name.endswith("_tokens"))


def without_too_few(usage: Usage, prompt_bytes: int | None, chars: int) -> tuple[Usage, int | None]:
    """Return ``usage`` without counts that are too few for the text, and the smallest of these; None: all are enough.

    Compatible servers may report zeros. Tokens that were read from a cache or written to one are of the prompt.
    """
    prompt, completion, reasoning, cached, written, tier, units, usd = msgspec.structs.astuple(usage)
    fewest = None
    if prompt is not None and prompt_bytes is not None:
        stated = max(prompt, (cached or 0) + (written or 0))
        if stated * MOST_BYTES_PER_TOKEN < (prompt_bytes - ENVELOPE_BYTES if stated else prompt_bytes):
            fewest, prompt, cached, written = prompt, None, None, None
    if completion is not None and completion * MOST_BYTES_PER_TOKEN < chars:
        fewest, completion, reasoning = completion if fewest is None else min(completion, fewest), None, None
    return Usage(prompt, completion, reasoning, cached, written, tier, units, usd), fewest
