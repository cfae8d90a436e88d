"""An answer of at most so many tokens, from an API that takes no limit so low: the rest is left out.

For example, Responses takes no limit below 16 tokens. Where the rest begins cannot be known exactly, as no event
states its tokens. Each piece of a delta that a model might write as one token counts as one, so that the client gets no
more tokens than it asked for.
"""

import re
from typing import Any

from providers.dialects.chat.choices import OfChoices

# A token of English has about four letters, a token of signs up to three; in other scripts each sign may be a token.
_TOKEN = re.compile(r"\s*(?:[A-Za-z]{1,6}|[0-9]{1,3}|[!-/:-@\[-`{-~]{1,3}|[^\sA-Za-z0-9])|\s+")
_TEXTS = ("reasoning_content", "content", "refusal")
_ARGUMENTS = {"function": "arguments", "custom": "input"}


class ShorteningTranslation(OfChoices):
    """A ``Translation`` of chat chunks: text beyond ``most`` tokens is left out, and the answer counts as cut short."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = most  # tokens of the choice that is being shortened; of the same choice:
        self._is_cut = False
        self._others: dict[int, tuple[int, bool]] = {}  # both, by the index of a choice

    def keeps(self, choice: dict[str, Any]) -> bool:
        """Shorten the texts of a choice; return whether anything is left of it."""
        index = choice.get("index", 0)
        self._left, self._is_cut = self._others.get(index, (self._most, False))
        keeps = self._keeps(choice)
        self._others[index] = self._left, self._is_cut
        return keeps

    def _keeps(self, choice: dict[str, Any]) -> bool:
        delta = choice["delta"]
        for name in _TEXTS:
            if isinstance(text := delta.get(name), str) and text:
                delta[name] = self._within(text)
                if not delta[name]:
                    del delta[name]
        if calls := delta.get("tool_calls"):
            delta["tool_calls"] = [call for call in calls if self._keeps_call(call)]
            if not delta["tool_calls"]:
                del delta["tool_calls"]
        if self._is_cut:
            for name in ("annotations", "images", "audio", "reasoning_details"):
                delta.pop(name, None)
            choice.pop("logprobs", None)
            if choice.get("finish_reason") is not None:
                choice["finish_reason"] = "length"
        return bool(delta) or choice.get("finish_reason") is not None

    def _keeps_call(self, call: dict[str, Any]) -> bool:
        """Shorten a piece of a call; return whether anything is left of it. A name counts as one token."""
        kind = "custom" if "custom" in call else "function"
        function = call[kind]
        if function.get("name"):
            if not self._left:
                self._is_cut = True
                return False
            self._left -= 1
        field = _ARGUMENTS[kind]
        if written := function.get(field):
            function[field] = self._within(written)
        return bool(function.get("name") or function.get(field))

    def _within(self, text: str) -> str:
        """Return as much of a text as is still within the limit."""
        if self._is_cut:
            return ""
        end = 0
        for token in _TOKEN.finditer(text):
            if not self._left:
                self._is_cut = True
                break
            self._left -= 1
            end = token.end()
        return text[:end]
