"""What OpenAI keeps of Responses: items, responses and conversations, and what a reference to them needs.

With ``store: false`` nothing is kept: https://platform.openai.com/docs/guides/migrate-to-responses,
https://platform.openai.com/docs/guides/reasoning#encrypted-reasoning-items.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from strict_vendors.rules.responses import ID_PREFIXES
from strict_vendors.vendor import Json, Refused

ITEMS_PAGE = "https://github.com/vercel/ai/issues/7543"


class KeptResponse(Struct):
    """A response that is kept, with all items that were before it."""

    body: Json
    before: list[Json]
    given: list[Json]  # the items of its own input


class Kept(Struct):
    """All that one account has stored."""

    items: dict[str, Json] = field(default_factory=dict)
    thoughts_of: dict[str, str] = field(default_factory=dict)  # the reasoning that stands before an item
    responses: dict[str, KeptResponse] = field(default_factory=dict)
    conversations: dict[str, list[Json]] = field(default_factory=dict)
    metadata: dict[str, Json] = field(default_factory=dict)

    def keep(self, response: Json, before: list[Json], given: list[Json]) -> None:
        """Store a response and its items."""
        for item in (*given, *response["output"]):
            if item.get("id"):
                self.items[item["id"]] = item
        self.thoughts_of |= thoughts_before(response["output"])
        self.responses[response["id"]] = KeptResponse(response, before, given)

    def response(self, name: str) -> KeptResponse:
        """Return a response that is asked for by its address."""
        if name not in self.responses:
            raise Refused(
                404,
                f"Response with id '{name}' not found.",
                rule="response not stored",
                page="https://platform.openai.com/docs/api-reference/responses/get",
            )
        return self.responses[name]

    def previous(self, name: str) -> list[Json]:
        """Return all items up to the end of a response that a request goes on from."""
        if name not in self.responses:
            raise Refused(  # https://github.com/router-for-me/CLIProxyAPI/issues/2954
                400,
                f"Previous response with id '{name}' not found.",
                code="previous_response_not_found",
                param="previous_response_id",
                rule="previous response not stored",
                page="https://github.com/router-for-me/CLIProxyAPI/issues/2954",
            )
        kept = self.responses[name]
        return [*kept.before, *kept.given, *kept.body["output"]]

    def conversation(self, name: str) -> list[Json]:
        """Return the items of a conversation."""
        if name not in self.conversations:
            raise Refused(
                404,
                f"Conversation with id '{name}' not found.",
                param="conversation",
                rule="no such conversation",
                page="https://platform.openai.com/docs/api-reference/conversations",
            )
        return self.conversations[name]


def thoughts_before(items: Sequence[Json]) -> dict[str, str]:
    """Return the id of the reasoning that stands before each item of an answer."""
    found: dict[str, str] = {}
    thoughts: str | None = None
    for item in items:
        if item["type"] == "reasoning":
            thoughts = item.get("id")
        elif thoughts and item.get("id"):
            found[item["id"]], thoughts = thoughts, None
    return found


def resolved(
    items: Sequence[Json], kept: Kept, seal: "Seal", *, store: bool, drops_foreign: bool = False
) -> list[Json]:
    """Return the items of an input with references replaced by what they mean.

    ``drops_foreign``: reasoning that another account has sealed is no refusal (it is dropped later).

    Raises:
        Refused: a reference to what is not kept, reasoning that is neither kept nor sealed by this account.

    """
    found = []
    for number, item in enumerate(items):
        kind, name = item["type"], item.get("id")
        if kind == "item_reference":
            if name not in kept.items:
                raise _not_found(str(name), store=store)
            found.append(kept.items[name])
            continue
        prefix = ID_PREFIXES.get(kind)
        if name and prefix and not name.startswith(prefix):
            raise Refused(
                400,
                f"Invalid 'input[{number}].id': '{name}'. Expected an ID that begins with '{prefix}'.",
                code="invalid_value",
                param=f"input[{number}].id",
                rule="prefix of an id",
                page="https://github.com/continuedev/continue/issues/11494",
            )
        if kind == "reasoning":
            sealed = item.get("encrypted_content")
            if sealed and not (drops_foreign and seal.is_foreign(sealed)):
                seal.check(sealed, name)
            elif sealed:
                pass
            elif name and name in kept.items:
                item = kept.items[name]  # noqa: PLW2901 - what is kept counts, not what is sent
            elif name:
                raise _not_found(name, store=store)
            else:
                raise Refused(
                    400,
                    f"Missing required parameter: 'input[{number}].id'.",
                    code="missing_required_parameter",
                    param=f"input[{number}].id",
                    rule="reasoning without id or content",
                    page=ITEMS_PAGE,
                )
        if kind == "compaction":
            seal.check(item["encrypted_content"], None)
        found.append(item)
    return found


def _not_found(name: str, *, store: bool) -> Refused:
    """Return the refusal, in the words of https://github.com/continuedev/continue/issues/9101."""
    told = (
        ""
        if store
        else " Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this"
        " item from your input."
    )
    return Refused(
        404, f"Item with id '{name}' not found.{told}", param="input", rule="item not stored", page=ITEMS_PAGE
    )


def check_history(items: Sequence[Json], kept: Kept) -> None:
    """Refuse a history in which something is missing, or is there twice."""
    seen: set[str] = set()
    for item in items:
        if (name := item.get("id")) is None:
            continue
        if name in seen:
            raise _wrong(
                f"Duplicate item found with id {name}. Remove duplicate items from your input and try again.",
                "item twice",
                "https://github.com/continuedev/continue/issues/10200",
            )
        seen.add(name)
    for number, item in enumerate(items):
        after = items[number + 1] if number + 1 < len(items) else None
        if item["type"] == "reasoning" and not _is_spoken(after):
            raise _wrong(
                f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item.",
                "reasoning without its item",
                "https://github.com/continuedev/continue/issues/8933",
            )
        thoughts = kept.thoughts_of.get(item.get("id") or "")
        if thoughts is not None and thoughts not in seen:
            raise _wrong(
                f"Item '{item['id']}' of type '{item['type']}' was provided without its required 'reasoning' item:"
                f" '{thoughts}'.",
                "item without its reasoning",
                "https://github.com/continuedev/continue/issues/11994",
            )
    _check_calls(items)


def _is_spoken(item: Json | None) -> bool:
    """Say whether it is what a model says after its thoughts."""
    if item is None or item["type"].endswith("_output"):
        return False
    return bool(item["type"] != "message" or item["role"] == "assistant")


_CALLS = {
    "function_call": "function",
    "custom_tool_call": "custom tool",
    "local_shell_call": "local shell",
    "shell_call": "shell",
    "apply_patch_call": "apply patch",
}


def _check_calls(items: Sequence[Json]) -> None:
    """Refuse a call without its output, and an output without its call.

    The words: https://github.com/symgraph/GhidrAssist/issues/78, https://github.com/continuedev/continue/issues/10092.
    """
    page = "https://platform.openai.com/docs/guides/function-calling"
    called: dict[str, str] = {}
    answered: set[str] = set()
    for item in items:
        kind, call_id = item["type"], item.get("call_id")
        if kind in _CALLS and call_id:
            called[call_id] = kind
        elif kind.endswith("_output") and kind.removesuffix("_output") in _CALLS and call_id:
            if called.get(call_id) != kind.removesuffix("_output"):
                name = _CALLS[kind.removesuffix("_output")]
                raise _wrong(
                    f"No tool call found for {name} call output with call_id {call_id}.",
                    "output without its call",
                    page,
                )
            answered.add(call_id)
    for call_id, kind in called.items():
        if call_id not in answered:
            raise _wrong(f"No tool output found for {_CALLS[kind]} call {call_id}.", "call without its output", page)


def _wrong(message: str, rule: str, page: str) -> Refused:
    return Refused(400, message, param="input", rule=rule, page=page)


_PLAIN = 2  # the item and its text, in what an older model's reasoning is sealed of


class Seal(Struct):
    """Encrypts what an account may get back: other accounts cannot open it."""

    secret: str

    def close(self, what: str, name: str | None, made: Sequence[str] = ()) -> str:
        """Return the encrypted form of some text, for the item ``name``; ``made``: what it is bound to."""
        inside = base64.urlsafe_b64encode(json.dumps([name, what, *made]).encode()).decode()
        return f"gAAAAAB{self._signed(inside)}{inside}"

    def is_foreign(self, sealed: str) -> bool:
        """Say whether another account has sealed something that is bound."""
        try:
            is_bound = len(json.loads(base64.urlsafe_b64decode(sealed[71:]))) > _PLAIN
        except ValueError:
            return False
        return is_bound and not hmac.compare_digest(sealed[7:71], self._signed(sealed[71:]))

    def made(self, sealed: str) -> list[str]:
        """Return what something is bound to; nothing, where it is of an older model."""
        return [str(each) for each in json.loads(base64.urlsafe_b64decode(sealed[71:]))[_PLAIN:]]

    def check(self, sealed: str, name: str | None) -> None:
        """Refuse what this account did not make, or made for another item.

        The words: https://github.com/openai/codex/issues/35334, https://github.com/Wei-Shaw/sub2api/issues/2863.
        """
        signed, inside = sealed[7:71], sealed[71:]
        of = f"for item {name}" if name else f"{sealed[:4]}...{sealed[-4:]}"
        if not sealed.startswith("gAAAAAB") or not hmac.compare_digest(signed, self._signed(inside)):
            raise _unsealed(of, "Encrypted content could not be decrypted or parsed.")
        made_for = json.loads(base64.urlsafe_b64decode(inside))[0]
        if name and made_for and name != made_for:
            raise _unsealed(of, "Encrypted content item_id did not match the target item id.")

    def _signed(self, inside: str) -> str:
        return hashlib.sha256(f"{self.secret}\n{inside}".encode()).hexdigest()


def _unsealed(of: str, reason: str) -> Refused:
    return Refused(
        400,
        f"The encrypted content {of} could not be verified. Reason: {reason}",
        code="invalid_encrypted_content",
        rule="encrypted content",
        page="https://github.com/openai/codex/issues/35334",
    )


def as_items(given: Any) -> list[Any]:
    """Return an input as items that all have a type: a text is a message, and what only has an id a reference."""
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": given}]}]
    return [_typed(item) if isinstance(item, dict) else item for item in given or ()]


def _typed(item: Json) -> Json:
    if item.get("type") is not None:
        return item
    return (
        {**item, "type": "message"} if "role" in item else {**item, "type": "item_reference"} if "id" in item else item
    )
