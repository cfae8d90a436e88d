"""A completion that broke off: prompt and text are continued like any other prompt."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from providers.dialects.chat.continuing import ChatSplice, Event
from providers.dialects.continuing import Begun, Continuing, Way, decoded_in, strings_of, with_less
from providers.dialects.wording import Fields

_OFF = frozenset({b"null", b"false", b"0", b'""'})
_ONE = frozenset({b"null", b"1"})
_events = msgspec.json.Decoder(Event)


class CompletionContinuing(Continuing):
    """Completions. Any server that has them continues; one that repeats the prompt (``echo``) is not asked to."""

    ways: frozenset[Way] = frozenset()
    always_counts = False

    def obstacle(self, fields: Fields) -> str | None:
        """Return the kind of answer that cannot be continued."""
        for name in ("logprobs", "echo", "suffix"):
            if name in fields and bytes(fields[name]).strip() not in _OFF:
                return name
        for name in ("n", "best_of"):
            if name in fields and bytes(fields[name]).strip() not in _ONE:
                return "choices"
        return None if bytes(fields.get("prompt", b"")).lstrip().startswith(b'"') else "prompt"

    def begun(self, events: Iterable[bytes]) -> Begun:
        """Read the chunks that were delivered."""
        head: dict[str, Any] = {}
        pieces: list[str] = []
        for event in decoded_in(events, _events):
            head = head or (event.head() if event.choices else {})
            for choice in event.choices or ():
                if choice.index or choice.finish_reason:
                    return Begun("", None, "choices" if choice.index else "ended")
                pieces.append(choice.text or "")
        return Begun("".join(pieces), msgspec.json.encode(head) if head else None)

    def stops(self, fields: Fields) -> Sequence[str]:
        """Return the stop strings."""
        return strings_of(fields.get("stop"))

    def request(self, fields: Fields, begun: str, way: Way | None, spent_tokens: int) -> Fields:  # noqa: ARG002 - all do
        """Return the request with the beginning after the prompt."""
        changed = with_less(fields, ("max_tokens",), spent_tokens)
        prompt = msgspec.json.decode(fields["prompt"], type=str)
        changed["prompt"] = msgspec.Raw(msgspec.json.encode(prompt + begun))
        return changed

    def splice(self, begun: Begun) -> ChatSplice:
        """Return what makes chunks with the first answer's id and model."""
        return ChatSplice(begun.head, "text_completion", _choice)


def _choice(text: str, finish_reason: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}
