"""MiniMax, whose models think by default; read on 2026-11-30."""

from collections.abc import Sequence
from typing import ClassVar

from strict_vendors.apis.messages_like import BLOCKS, IMAGE, MessagesLike, WithMessages, table
from strict_vendors.apis.thinking_chat import ThinkingChat
from strict_vendors.models import Model, Models, alike
from strict_vendors.vendor import Json, Refused

# "temperature: range (0.0, 1.0]"; texts, calls, results and thoughts, and no documents. Passed over are top_k,
# stop_sequences, service_tier, mcp_servers, context_management and container. Forced tools are "fully supported". In its
# words of the order many were refused (2013); those of temperatures and pictures are made up.
_MESSAGES_PAGE = "https://platform.minimax.io/docs/api-reference/text-anthropic-api"
_PICTURES = "https://docs.evolink.ai/en/api-manual/language-series/minimax-m3/minimax-m3-messages.md"
_SEES = "sees pictures"
_KNOWN = Models(
    Model("MiniMax-M3", context=1_000_000, longest=524_288, efforts=("adaptive",), marks=frozenset({_SEES}), page=_PICTURES),
    *alike(
        ("MiniMax-M2.5", "MiniMax-M2.7"),
        Model(context=204_800, longest=131_072, efforts=("adaptive",), page=_MESSAGES_PAGE),
    ),
)  # fmt: skip


class _Messages(MessagesLike):
    """Its Messages."""

    name = "minimax-messages"
    messages = table(_MESSAGES_PAGE, {**BLOCKS, "image": IMAGE})
    counted = messages
    models = _KNOWN

    def check_model(self, body: Json, model: Model) -> None:
        """Refuse other temperatures, and pictures where the model sees none."""
        if (temperature := body.get("temperature")) is not None and not 0 < temperature <= 1:
            said = "invalid params, temperature must be in (0, 1] (2013)"
            raise Refused(400, said, rule="temperature", page=_MESSAGES_PAGE)
        contents = [turn["content"] for turn in body["messages"] if isinstance(turn["content"], list)]
        if _SEES not in model.marks and any(block["type"] == "image" for blocks in contents for block in blocks):
            raise Refused(400, "invalid params, image is not supported (2013)", rule="picture", page=_MESSAGES_PAGE)

    def check_history(self, body: Json, model: Model) -> None:
        """Refuse calls and results that do not belong together, in its own words."""
        try:
            super().check_history(body, model)
        except Refused as refused:
            if refused.rule in {"calls without results", "result without its call"}:
                refused.message = "invalid params, tool call result does not follow tool call (2013)"
                refused.page = _MESSAGES_PAGE
            raise


class VENDOR(WithMessages, ThinkingChat):
    """MiniMax."""

    name = "minimax"
    key = "sk-api-strict-minimax"
    own = _Messages
    messages_path = "/anthropic/v1/messages"
    pages: ClassVar[Sequence[str]] = (_MESSAGES_PAGE, _PICTURES)
    models = _KNOWN

    def refuse_key(self, given: str) -> None:
        """Refuse a key."""
        raise Refused(401, "login fail: Please carry the API secret key (1004)", rule="key", page=_MESSAGES_PAGE)

    def is_off(self, body: Json) -> bool:
        """Say whether a request forbids thinking."""
        return (body.get("thinking") or {}).get("type") == "disabled"
