"""Alibaba Cloud Model Studio (DashScope): Qwen, which thinks by default; read on 2026-11-29."""

from collections.abc import Sequence
from typing import Any, ClassVar

from strict_vendors.apis.thinking_chat import ThinkingChat
from strict_vendors.models import Model, Models, alike
from strict_vendors.vendor import Json, Refused

_MODELS = "https://www.alibabacloud.com/help/en/model-studio/models"


class VENDOR(ThinkingChat):
    """DashScope, as chat knows it."""

    name = "dashscope"
    base = "/compatible-mode/v1"
    key = "sk-strict-dashscope"
    pages: ClassVar[Sequence[str]] = (_MODELS,)
    forced_page = "https://github.com/cloudwego/eino/issues/994"
    models = Models(
        *alike(
            ("qwen3.5-plus", "qwen3.7-plus", "qwen3.8-max"),
            Model(context=1_000_000, longest=65_536, efforts=("enabled",), page=_MODELS),
        )
    )

    def refuse_key(self, given: str) -> None:
        """Refuse a key."""
        raise Refused(401, "Incorrect API key provided.", code="invalid_api_key", rule="key")

    def is_off(self, body: Json) -> bool:
        """Say whether a request forbids thinking."""
        return body.get("enable_thinking") is False

    def forced(self, choice: Any) -> str:
        """Return the words in which a forced tool is refused."""
        return (
            "<400> InternalError.Algo.InvalidParameter: The tool_choice parameter does not support being set to required"
            " or object in thinking mode"
        )
