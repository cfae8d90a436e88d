"""Thoughts of Claude that are bound: to all that came before them, to the models that may read them, to an account.

"A thinking block is tied to what came before it: system, tools, and every earlier message; the model; the account". A
changed beginning is a 400, or the block and all later thoughts are dropped, as ``prefix_mismatch_behavior`` says; what
another model or account made is dropped without a word, unless the beta asks for ``input_transformations``.
Read on 2026-11-29 in the pages below; the reasons are those of the SDK and of Bedrock's page.
"""

import base64
import copy
import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from strict_vendors.models import Model
from strict_vendors.vendor import Json, Refused

PAGE = "https://platform.claude.com/docs/en/build-with-claude/preserved-thinking"
FIX = f"{PAGE}/fix-bound-to-a-different-conversation"
REASONS = "https://docs.aws.amazon.com/bedrock/latest/userguide/claude-messages-thinking-block-binding.html"
CONTROLS = "thinking-binding-controls-2026-08-01"
# Marks of a model: its thoughts are read only behind the same beginning; only by the account that made them.
PREFIX, ACCOUNT = "thoughts bound to their prefix", "thoughts bound to their account"
# Whose thoughts a model reads beside its own; Haiku 5.5's are read by every model, and it reads no other's (``REASONS``).
READS: Mapping[str, frozenset[str]] = {
    "claude-fable-5-1": frozenset({"claude-opus-5-5"}),
    "claude-fable-5-2": frozenset({"claude-opus-5-5", "claude-fable-5-1"}),
}
_READ_BY_ALL = "claude-haiku-5-5"
_BILL = "x-anthropic-billing-header:"  # it is left out: https://code.claude.com/docs/en/llm-gateway-protocol
_BEGINS = "Ep"  # other signatures are of models whose thoughts are not bound


class Dropped(Struct, frozen=True):
    """A block of thoughts that the model was not shown: where it stands, and which check it failed."""

    path: str
    reason: str

    @property
    def told(self) -> Json:
        """It as an entry of ``input_transformations``."""
        return {"type": "thinking_dropped", "path": self.path, "reason": self.reason}


class Sealed(Struct, frozen=True):
    """What a signature has of the thoughts that it is of."""

    thoughts: str
    model: str
    account: str
    prefix: str
    system: str


def is_bound(model: Model) -> bool:
    """Say whether a model's thoughts are bound to what came before them."""
    return PREFIX in model.marks


def sealed(thoughts: str, body: Json, model: Model, account: str) -> str:
    """Return the signature of thoughts that answer a request."""
    made = [_digest(thoughts), model.name, _digest(account), _end(body), _digest(_blocks(body.get("system")))]
    inside = base64.urlsafe_b64encode(json.dumps(made).encode()).decode()
    return f"{_BEGINS}{_mac(inside)}{inside}"


def opened(signature: str) -> Sealed | None:
    """Return what a signature has; None if it is not one of bound thoughts, or was altered."""
    mac, inside = signature[2:66], signature[66:]
    if not signature.startswith(_BEGINS) or not hmac.compare_digest(mac, _mac(inside)):
        return None
    return Sealed(*json.loads(base64.urlsafe_b64decode(inside)))


def is_of(seal: Sealed, thoughts: str | None) -> bool:
    """Say whether a signature is of these thoughts; what was told without its words is empty."""
    return not thoughts or seal.thoughts == _digest(thoughts)


def dropped(body: Json, model: Model, account: str, *, drops: bool) -> list[Dropped]:
    """Return the thoughts of a request that its model is not shown.

    ``drops``: those behind another beginning too; else they are refused.
    """
    found: list[Dropped] = []
    is_edited = False
    for number, inner, block, prefix in _thoughts(body):
        seal = opened(block.get("signature") or block.get("data") or "")
        path = f"messages.{number}.content.{inner}"
        reason = _mismatch(seal, model, account)
        if reason is None and seal is not None and is_bound(model):
            is_edited = is_edited or (seal.model == model.name and seal.prefix != prefix)
            reason = "prefix_binding_mismatch" if is_edited else None
            if is_edited and not drops:
                raise _refused(path, block, body, seal)
        if reason is not None:
            found.append(Dropped(path, reason))
    return found


def without(messages: Sequence[Json], found: Sequence[Dropped]) -> list[Json]:
    """Return the messages as the model is shown them."""
    gone = {each.path for each in found}
    return [
        {
            **message,
            "content": [
                block
                for inner, block in enumerate(message["content"])
                if f"messages.{number}.content.{inner}" not in gone
            ],
        }
        if isinstance(message["content"], list)
        else message
        for number, message in enumerate(messages)
    ]


def _mismatch(seal: Sealed | None, model: Model, account: str) -> str | None:
    made_by = seal.model if seal is not None else ""
    is_readable = made_by in {model.name, _READ_BY_ALL, *READS.get(model.name, ())}
    if not is_readable and (is_bound(model) or seal is not None):
        return "model_binding_mismatch"
    if seal is not None and ACCOUNT in model.marks and seal.account != _digest(account):
        return "organization_binding_mismatch"
    return None


def _refused(path: str, block: Json, body: Json, seal: Sealed) -> Refused:
    # The words, with what has changed: https://github.com/anomalyco/opencode/issues/48637
    kind, field = ("thinking", "signature") if block["type"] == "thinking" else ("redacted_thinking", "data")
    changed = ""
    if seal.system != _digest(_blocks(body.get("system"))):
        changed = " The `system` prompt differs from the one this block was created with."
    return Refused(
        400,
        f"{path}: Invalid `{field}` in `{kind}` block. The block is bound to a different conversation. Remove the block,"
        ' or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block". That setting requires the'
        f" `{CONTROLS}` value in the `anthropic-beta` header.{changed}",
        rule="bound to another conversation",
        page=FIX,
    )


def _thoughts(body: Json) -> Iterator[tuple[int, int, Json, str]]:
    """Yield each block of thoughts with the digest of all that stands before it."""
    digest = _beginning(body)
    for number, message in enumerate(body["messages"]):
        for inner, block in enumerate(_blocks(message["content"])):
            if block["type"] in {"thinking", "redacted_thinking"}:
                yield number, inner, block, digest.hexdigest()
            _add(digest, message["role"], block)


def _end(body: Json) -> str:
    digest = _beginning(body)
    for message in body["messages"]:
        for block in _blocks(message["content"]):
            _add(digest, message["role"], block)
    return str(digest.hexdigest())


def _beginning(body: Json) -> Any:
    digest = hashlib.sha256()
    for role, blocks in (("tools", body.get("tools") or []), ("system", _blocks(body.get("system")))):
        for block in blocks:
            _add(digest, role, block)
    return digest


def _add(digest: Any, role: str, block: Json) -> None:
    said = copy.copy(block)
    if block.get("type") == "thinking":  # its words may come back shortened, or not at all
        said = {"type": "thinking", "signature": block["signature"]}
    elif block.get("type") == "tool_result":
        said["content"] = _blocks(block.get("content"))
    digest.update(json.dumps([role, _unmarked(said)], sort_keys=True).encode())


def _unmarked(said: Any) -> Any:
    if isinstance(said, list):
        return [_unmarked(each) for each in said]
    if isinstance(said, dict):
        return {name: _unmarked(value) for name, value in said.items() if name != "cache_control"}
    return said


def _blocks(content: Any) -> list[Json]:
    """Return a content as blocks: a text is one; what only bills is none."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    return [block for block in blocks if not str(block.get("text", "")).startswith(_BILL)]


def _digest(what: Any) -> str:
    return hashlib.sha256(json.dumps(_unmarked(what), sort_keys=True).encode()).hexdigest()


def _mac(inside: str) -> str:
    return hashlib.sha256(f"a stand-in of Anthropic\n{inside}".encode()).hexdigest()
