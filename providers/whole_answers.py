"""What an answer that is not raced reports of its tokens: embeddings, transcripts and pictures say it alike."""

from typing import Any

import msgspec

from providers.usage import Usage, usage_of


class _Answer(msgspec.Struct, frozen=True):
    usage: dict[str, Any] | None = None


_answers = msgspec.json.Decoder(_Answer)  # which passes over vectors and pictures without making anything of them


def reported_usage(answer: bytes) -> Usage | None:
    """Return the tokens a JSON answer, or one event's data, reports; None where it reports none.

    OpenAI's newer APIs say ``input_tokens`` and ``output_tokens``; embedders that have only a total count the input.
    """
    try:
        said = _answers.decode(answer).usage or {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    for name, newer in (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")):
        if name not in said and newer in said:
            said[name] = said[newer]
    if "prompt_tokens" not in said and "completion_tokens" not in said and "total_tokens" in said:
        said["prompt_tokens"] = said["total_tokens"]
    usage = usage_of(said)
    return None if usage.prompt_tokens is None and usage.completion_tokens is None else usage
