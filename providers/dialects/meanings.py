"""What refusals mean, and how the vendor of each API tells it: a table of meanings and APIs.

Programs recognise a refusal by the code or the words of their own API's vendor alone. So a refusal of another API's
vendor, or of the gateway, is told in these. What is not in the table is told by its status.
"""

import re
from collections.abc import Mapping

import msgspec

from providers.meanings import Meaning
from providers.too_long import Lengths


class Telling(msgspec.Struct, frozen=True):
    """How a vendor tells a refusal of one meaning."""

    type: str
    own: re.Pattern[str]  # finds its own words: a message that has them is told as it is
    words: str  # where nothing else is known
    code: str | None = None  # None: its errors have none
    long: str = ""  # the words if ``prompt`` and ``most`` are known, as they are of a length
    beside: str = ""  # the words if the prompt would fit, but not with the ``answer`` beside it

    def message(self, said: str, lengths: Lengths) -> str:
        """Return what ``said``, the words of another vendor or of the gateway, is in its words."""
        if self.own.search(said) is not None:
            return said
        words = self.words
        if lengths.prompt is not None and lengths.most is not None:
            words = (self.long if lengths.answer is None else self.beside) or words
        words = words.format(prompt=lengths.prompt, answer=lengths.answer, most=lengths.most)
        return f"{words} ({said})" if said else words


OPENAI, ANTHROPIC, GOOGLE = "openai", "anthropic", "google"  # whose words: ``Dialect.told_as``

# Beside each, who reads it, and how.
TELLINGS: Mapping[Meaning, Mapping[str, Telling]] = {
    # The agent shortens the conversation, and goes on; without these words it gives up.
    # pi and opencode know the words of all three: packages/ai/src/utils/overflow.ts of
    # https://github.com/badlogic/pi-mono, in copies of its patterns, read on 2026-11-29.
    Meaning.TOO_LONG: {
        # Codex, by the code alone: is_context_window_error in codex-rs/codex-api/src/sse/responses.rs of
        # https://github.com/openai/codex, read on 2026-11-29; by status 400 and the code in its version 0.171, tried.
        OPENAI: Telling(
            type="invalid_request_error",
            code="context_length_exceeded",
            own=re.compile(r"maximum context length is \d+ tokens|exceeds the context window", re.IGNORECASE),
            words="Your input exceeds the context window of this model. Please adjust your input and try again.",
            long=(
                "This model's maximum context length is {most} tokens. However, your messages resulted in {prompt}"
                " tokens. Please reduce the length of the messages."
            ),
            beside=(
                "This model's maximum context length is {most} tokens. However, your messages resulted in {prompt}"
                " tokens, and {answer} are requested for the completion. Please reduce the length of the messages or"
                " completion."
            ),
        ),
        # Claude Code, by status 400 and these words: at the last it asks for a shorter answer (2.1.332, tried).
        ANTHROPIC: Telling(
            type="invalid_request_error",
            own=re.compile(r"prompt is too long|input length and `max_tokens` exceed context limit", re.IGNORECASE),
            words="prompt is too long",
            long="prompt is too long: {prompt} tokens > {most} maximum",
            beside=(
                "input length and `max_tokens` exceed context limit: {prompt} + {answer} > {most}, decrease input"
                " length or `max_tokens` and try again"
            ),
        ),
        GOOGLE: Telling(
            type="INVALID_ARGUMENT",
            own=re.compile(r"token count.{0,40}exceeds the maximum number of tokens", re.IGNORECASE),
            words="The input token count exceeds the maximum number of tokens allowed.",
            long="The input token count ({prompt}) exceeds the maximum number of tokens allowed ({most}).",
        ),
    },
}

# The codes of all meanings, by which programs go on.
CODES = frozenset(told[OPENAI].code for told in TELLINGS.values())
