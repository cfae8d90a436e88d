"""Chat completions of vendors whose models think unless they are told not to, and most call no forced tool meanwhile.

Their bodies are read as OpenAI's with fields of their own; what else they refuse is DeepSeek's alone (``known/``).
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from strict_vendors.apis.chat_like import ChatLike
from strict_vendors.models import Model
from strict_vendors.shapes import Anything, Decimal, Fault, Flag, ListOf, MapOf, Record, Text, Whole
from strict_vendors.vendor import Json, Refused
from strict_vendors.words import in_openais_words

CHAT = Record(
    open=True,
    fields={
        "model": Text(),
        "messages": ListOf(of=MapOf(), fewest=1),
        "max_tokens": Whole(nullable=True, least=1),
        "max_completion_tokens": Whole(nullable=True, least=1),
        "temperature": Decimal(nullable=True, least=0, most=2),
        "top_p": Decimal(nullable=True, least=0, most=1),
        "stream": Flag(nullable=True),
        "tools": ListOf(nullable=True),
        "tool_choice": Anything(),
        "reasoning_effort": Text(nullable=True),
    },
    needed=("model", "messages"),
)
ALWAYS = "always thinks"  # a mark of a model


class ThinkingChat(ChatLike):
    """A vendor of such models; ``forced`` are its words of a forced tool, and ``forced_page`` where they are."""

    chat = CHAT
    thoughts = "reasoning_content"
    usage_in = "last"
    forced_page: ClassVar[str] = ""  # none: they call a forced tool while they think

    def words(self, fault: Fault) -> Refused:
        """Return a fault in words like OpenAI's."""
        return in_openais_words(fault)

    def is_off(self, body: Json) -> bool:
        """Say whether a request forbids thinking."""
        raise NotImplementedError

    def forced(self, choice: Any) -> str:
        """Return the words in which a forced tool is refused."""
        raise NotImplementedError

    def thinks(self, body: Json, model: Model) -> bool:
        """Say whether it thinks: unless it is told not to."""
        return model.thinks and not self.is_off(body)

    def check_model(self, body: Json, model: Model) -> None:
        """Refuse a forced tool while it thinks, and that what always thinks does not."""
        if ALWAYS in model.marks and self.is_off(body):
            raise Refused(
                400, "invalid thinking: only type=enabled is allowed for this model", rule=ALWAYS, page=model.page
            )
        choice = body.get("tool_choice")
        if self.forced_page and choice not in (None, "auto", "none") and self.thinks(body, model):
            raise Refused(400, self.forced(choice), rule="forced tool while it thinks", page=self.forced_page)


def is_named(choice: Any) -> bool:
    """Say whether a choice names its tool."""
    return isinstance(choice, Mapping)
