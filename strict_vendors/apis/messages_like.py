"""Messages of vendors that have chat beside it: fields that they do not know are passed over, and so are signatures."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from strict_vendors.apis.chat import ChatVendor
from strict_vendors.apis.messages import MessagesVendor
from strict_vendors.models import Model
from strict_vendors.script import Broken
from strict_vendors.shapes import ByTag, Decimal, Either, Flag, ListOf, MapOf, Record, Shape, Text, Whole
from strict_vendors.vendor import Json, Refused, Reply, Request, Route


def block(*needed: str, **fields: Shape) -> Record:
    """Return the table of a block of content."""
    return Record(open=True, fields={"type": Text(), **fields}, needed=needed)


_TEXT, IMAGE = block("text", text=Text()), block("source", source=MapOf())
_RESULT = Either(shapes=(Text(), ListOf(of=ByTag(shapes={"text": _TEXT, "image": IMAGE}))))
# Of vendors whose pages have Claude Code's set-up, and no list of roles: it says something between turns by this one.
AS_CLAUDE_CODE = ("user", "assistant", "system")
# What all of them have: no documents, and no thoughts that are sealed.
BLOCKS: Mapping[str, Record] = {
    "text": _TEXT,
    "thinking": block("thinking", thinking=Text()),
    "tool_use": block("id", "name", "input", id=Text(), name=Text(), input=MapOf()),
    "tool_result": block("tool_use_id", tool_use_id=Text(), content=_RESULT),
}


def table(
    page: str, blocks: Mapping[str, Record] = BLOCKS, *, roles: Sequence[str] = ("user", "assistant"), **fields: Shape
) -> Record:
    """Return the table of a request; ``fields`` are those of this vendor, or other bounds than the usual ones."""
    turn = Record(
        open=True,
        fields={
            "role": Text(only=roles),
            "content": Either(shapes=(Text(), ListOf(of=ByTag(shapes=blocks)))),
        },
        needed=["role", "content"],
    )
    usual: dict[str, Shape] = {
        "model": Text(),
        "messages": ListOf(of=turn, fewest=1),
        "max_tokens": Whole(least=1),
        "system": Either(shapes=(Text(), ListOf(of=ByTag(shapes={"text": _TEXT}))), nullable=True),
        "thinking": Record(open=True, nullable=True, fields={"type": Text(only=["enabled", "disabled", "adaptive"])}),
        "tools": ListOf(of=MapOf(), nullable=True),
        "tool_choice": Record(open=True, nullable=True, fields={"type": Text(only=["auto", "any", "tool", "none"])}),
        "stop_sequences": ListOf(of=Text(), nullable=True),
        "stream": Flag(nullable=True),
        "temperature": Decimal(nullable=True, least=0, most=2),
        "top_p": Decimal(nullable=True, least=0, most=1),
    }
    return Record(open=True, page=page, fields={**usual, **fields}, needed=["model", "messages", "max_tokens"])


class MessagesLike(MessagesVendor):
    """Messages of such a vendor: its models think unless they are told not to, and take thoughts that anybody signed."""

    def thinks(self, body: Json, model: Model) -> bool:
        """Say whether it thinks."""
        return model.thinks and (body.get("thinking") or {}).get("type") != "disabled"

    def sign(self, thoughts: str, body: Json | None = None, model: Model | None = None) -> str:
        """Return the signature of some thoughts, which is of no use: no page says what it is."""
        return hashlib.sha256(thoughts.encode()).hexdigest()

    def _check_thoughts(self, body: Json) -> None:
        """Take any thoughts."""


class WithMessages(ChatVendor):
    """A vendor of chat that has Messages of its own at another path of its host."""

    own: ClassVar[type[MessagesVendor]]
    messages_path: ClassVar[str]

    def __init__(self, seed: str = "", account: str = "") -> None:
        self.own_messages = self.own(seed, account)
        super().__init__(seed, account)

    def routes(self) -> Sequence[Route]:
        """Return the addresses of both."""
        return [("POST", self.messages_path, self.speak), *super().routes()]

    def speak(self, request: Request) -> Reply:
        """Answer a request of Messages, or refuse it in the shape of Messages."""
        try:
            return self.own_messages.speak(request)
        except Broken as broken:
            refused = self.own_messages.broken(broken)
        except Refused as error:
            refused = error
        self.note(request, refused)
        return self.own_messages.refusal(refused)


def forces(body: Json) -> bool:
    """Say whether a request forces a call of a tool."""
    return (body.get("tool_choice") or {}).get("type") in {"any", "tool"}


def calls_without_thoughts(body: Json) -> int | None:
    """Return the number of the first turn that calls tools and says no thoughts."""
    for number, turn in enumerate(body["messages"]):
        content: Any = turn["content"]
        kinds = {each["type"] for each in content} if isinstance(content, list) else set()
        if turn["role"] == "assistant" and "tool_use" in kinds and "thinking" not in kinds:
            return number
    return None
