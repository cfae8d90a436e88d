"""Alibaba Cloud Model Studio (DashScope): Qwen, which thinks by default; chat read on 2026-11-29, Messages on 2026-11-30."""

from collections.abc import Sequence
from typing import Any, ClassVar

from strict_vendors.apis.messages_like import BLOCKS, IMAGE, MessagesLike, WithMessages, forces, table
from strict_vendors.apis.thinking_chat import ThinkingChat
from strict_vendors.models import Model, Models, alike
from strict_vendors.shapes import Record, Text, Whole
from strict_vendors.vendor import Json, Refused

_MODELS = "https://www.alibabacloud.com/help/en/model-studio/models"
_KNOWN = Models(
    *alike(
        ("qwen3.5-plus", "qwen3.7-plus", "qwen3.8-flash", "qwen3.8-max"),
        Model(context=1_000_000, longest=65_536, efforts=("enabled",), page=_MODELS),
    )
)
_MESSAGES_PAGE = "https://help.aliyun.com/en/model-studio/anthropic-api-messages"
# "The thinking_budget parameter must be a positive integer and not greater than xxx", the longest chain of thoughts.
_ERRORS = "https://www.alibabacloud.com/help/model-studio/error-code"
_LONGEST_THOUGHTS = 81_920
_FORCED = (
    "<400> InternalError.Algo.InvalidParameter: The tool_choice parameter does not support being set to required"
    " or object in thinking mode"
)
_FORCED_PAGE = "https://github.com/cloudwego/eino/issues/994"
_THINKING = Record(open=True, nullable=True, fields={"type": Text(), "budget_tokens": Whole(nullable=True)})


class _Messages(MessagesLike):
    """Its Messages, which the chat of the same model answers: that refuses what it refuses there."""

    name = "dashscope-messages"
    messages = table(_MESSAGES_PAGE, {**BLOCKS, "image": IMAGE}, thinking=_THINKING)
    counted = messages
    models = _KNOWN

    def check_model(self, body: Json, model: Model) -> None:
        """Refuse a forced tool while it thinks, and more thoughts than it can have."""
        if forces(body) and self.thinks(body, model):
            raise Refused(400, _FORCED, rule="forced tool while it thinks", page=_FORCED_PAGE)
        budget = (body.get("thinking") or {}).get("budget_tokens")
        if budget is not None and not 0 < budget <= _LONGEST_THOUGHTS:
            said = "The thinking_budget parameter must be a positive integer and not greater than"
            raise Refused(400, f"{said} {_LONGEST_THOUGHTS}", rule="budget", page=_ERRORS)


class VENDOR(WithMessages, ThinkingChat):
    """DashScope."""

    name = "dashscope"
    base = "/compatible-mode/v1"
    key = "sk-strict-dashscope"
    own = _Messages
    messages_path = "/apps/anthropic/v1/messages"
    pages: ClassVar[Sequence[str]] = (_MODELS, _MESSAGES_PAGE, _ERRORS)
    forced_page = _FORCED_PAGE
    models = _KNOWN

    def refuse_key(self, given: str) -> None:
        """Refuse a key."""
        raise Refused(401, "Incorrect API key provided.", code="invalid_api_key", rule="key")

    def is_off(self, body: Json) -> bool:
        """Say whether a request forbids thinking."""
        return body.get("enable_thinking") is False

    def forced(self, choice: Any) -> str:
        """Return the words in which a forced tool is refused."""
        return _FORCED
