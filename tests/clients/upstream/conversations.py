"""Conversations as OpenAI's upstream keeps them: made, read, changed and deleted, with their items."""

import itertools
from typing import Any

from tests.clients.upstream.chat import CREATED
from tests.clients.upstream.errors import Refused

Json = dict[str, Any]


class Conversations:
    """What one upstream keeps, in its memory. ``server`` is part of each id, so that two never give the same one."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._numbers = itertools.count(1)
        self._metadata: dict[str, Json] = {}
        self._items: dict[str, dict[str, Json]] = {}  # by conversation, then by their own ids

    def make(self, body: Json) -> Json:
        """Return a new conversation with the items of ``body``."""
        name = f"conv_{self._server}_{next(self._numbers)}"
        self._metadata[name] = body.get("metadata") or {}
        self._items[name] = {}
        self.add(name, body)
        return self.tell(name)

    def tell(self, name: str) -> Json:
        """Return a conversation, without its items."""
        self._kept(name)
        return {"id": name, "object": "conversation", "created_at": CREATED, "metadata": self._metadata[name]}

    def change(self, name: str, body: Json) -> Json:
        """Replace what is noted beside a conversation."""
        self._kept(name)
        self._metadata[name] = body["metadata"]
        return self.tell(name)

    def delete(self, name: str) -> Json:
        """Forget a conversation."""
        self._kept(name)
        del self._items[name], self._metadata[name]
        return {"id": name, "object": "conversation.deleted", "deleted": True}

    def add(self, name: str, body: Json) -> Json:
        """Append items; return them as they are kept."""
        kept = self._kept(name)
        added = [_item(item, f"msg_{self._server}_{next(self._numbers)}") for item in body.get("items") or ()]
        kept.update({item["id"]: item for item in added})
        return _listed(added)

    def items(self, name: str) -> Json:
        """Return the items of a conversation, the oldest first."""
        return _listed(list(self._kept(name).values()))

    def item(self, name: str, item: str) -> Json:
        """Return one item."""
        kept = self._kept(name)
        if item not in kept:
            raise Refused(404, f"Item with id '{item}' not found.")
        return kept[item]

    def drop(self, name: str, item: str) -> Json:
        """Forget one item; return the conversation that it was in."""
        self.item(name, item)
        del self._kept(name)[item]
        return self.tell(name)

    def said(self, name: str) -> str:
        """Return the texts of a conversation, a line each."""
        return "\n".join(part["text"] for item in self._kept(name).values() for part in item["content"])

    def _kept(self, name: str) -> dict[str, Json]:
        if name not in self._items:
            raise Refused(404, f"Conversation with id '{name}' not found.")
        return self._items[name]


def _item(given: Json, name: str) -> Json:
    content = given["content"]
    parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
    return {"type": "message", "status": "completed", **given, "id": name, "content": parts}


def _listed(items: list[Json]) -> Json:
    edges = {"first_id": items[0]["id"] if items else "", "last_id": items[-1]["id"] if items else ""}
    return {"object": "list", "data": items, **edges, "has_more": False}
