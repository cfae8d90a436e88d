"""One tool call at a time, of a model whose API cannot ask for one call: calls after the first are left out.

So a client that takes one call gets one. The model asks for the other calls after the result of the first.
"""

from typing import Any, ClassVar

from providers.dialects.chat.choices import OfChoices
from providers.dialects.wording import Fields


def wants_one_call(fields: Fields) -> bool:
    """Whether a request says ``parallel_tool_calls: false``."""
    return bytes(fields.get("parallel_tool_calls", b"")) == b"false"


class OneCall(OfChoices):
    """A ``Translation`` of chat chunks: of each choice, tool calls after the first are left out."""

    word: ClassVar[bytes] = b'"tool_calls"'

    def keeps(self, choice: dict[str, Any]) -> bool:
        """Remove later calls from a choice; return whether anything is left of it."""
        delta = choice["delta"]
        if "tool_calls" not in delta:
            return True
        delta["tool_calls"] = [call for call in delta["tool_calls"] if call["index"] == 0]
        if not delta["tool_calls"]:
            del delta["tool_calls"]
        return bool(delta) or choice.get("finish_reason") is not None
