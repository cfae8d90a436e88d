"""Z.ai: GLM, which thinks by default; read on 2026-11-30."""

from collections.abc import Sequence
from typing import ClassVar

from strict_vendors.apis.messages_like import AS_CLAUDE_CODE, MessagesLike, WithMessages, table
from strict_vendors.apis.thinking_chat import ThinkingChat
from strict_vendors.models import Model, Models, alike
from strict_vendors.vendor import Json, Refused, Reply

_MESSAGES_PAGE = "https://docs.z.ai/scenario-example/develop-tools/claude"
_FLASH = "https://docs.z.ai/guides/vlm/glm-5.3-flash"
_ERRORS = "https://docs.z.ai/api-reference/api-code"
# The same number for each wrong field, and words that name none.
_NO_FIELD = "https://github.com/cline/cline/issues/9939"
_NO_PROMPT = "https://github.com/zed-industries/zed/issues/45704"
_KNOWN = Models(
    *alike(
        ("glm-4.7", "glm-5.2", "glm-5.3"),
        Model(context=200_000, longest=131_072, efforts=("enabled",), page=_MESSAGES_PAGE),
    ),
    Model("glm-5.3-flash", context=1_048_576, longest=131_072, efforts=("enabled",), page=_FLASH),
)
_WORDS = {
    "1210": "Invalid API parameter, please check the documentation.",
    "1211": "Unknown Model, please check the model code.",
    "1213": "The prompt parameter was not received normally.",
}


class _Messages(MessagesLike):
    """Its Messages: texts, thoughts and tools, and a refusal that says a number."""

    name = "zai-messages"
    messages = table(_MESSAGES_PAGE, roles=AS_CLAUDE_CODE)
    counted = messages
    models = _KNOWN

    def check_model(self, body: Json, model: Model) -> None:
        """Refuse a longer answer than the model can give."""
        if body["max_tokens"] > model.longest:
            raise Refused(400, "The max_tokens parameter is illegal", code="1210", rule="longest answer", page=_ERRORS)

    def refusal(self, refused: Refused) -> Reply:
        """Return a refusal with its number, which stands in the words as well."""
        reply = super().refusal(refused)
        code = refused.code or {"model": "1211", "empty message": "1213", "empty text": "1213"}.get(
            refused.rule, "1210"
        )
        if reply.status in {400, 404}:
            said = refused.message if refused.code else _WORDS[code]
            reply.body["error"] = {"type": "invalid_request_error", "code": code, "message": f"[{code}][{said}]"}
        return reply


class VENDOR(WithMessages, ThinkingChat):
    """Z.ai."""

    name = "zai"
    base = "/api/paas/v4"
    key = "strict.zai"
    own = _Messages
    messages_path = "/api/anthropic/v1/messages"
    pages: ClassVar[Sequence[str]] = (_MESSAGES_PAGE, _ERRORS, _NO_FIELD, _NO_PROMPT)
    models = _KNOWN

    def refuse_key(self, given: str) -> None:
        """Refuse a key."""
        raise Refused(401, "Authorization Token verification failed.", code="1003", rule="key", page=_ERRORS)

    def is_off(self, body: Json) -> bool:
        """Say whether a request forbids thinking."""
        return (body.get("thinking") or {}).get("type") == "disabled"
