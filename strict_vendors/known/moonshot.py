"""Moonshot: Kimi, which thinks by default; chat read on 2026-11-29, Messages on 2026-11-30."""

from collections.abc import Sequence
from typing import Any, ClassVar

from strict_vendors.apis.messages_like import (
    AS_CLAUDE_CODE,
    BLOCKS,
    IMAGE,
    MessagesLike,
    WithMessages,
    calls_without_thoughts,
    forces,
    table,
)
from strict_vendors.apis.thinking_chat import ALWAYS, ThinkingChat, is_named
from strict_vendors.models import Model, Models, alike
from strict_vendors.vendor import Json, Refused

_MODELS = "https://platform.moonshot.ai/docs"
# Of its newest for code: "Only `enabled` is accepted, `disabled` errors."
_ALWAYS_PAGE = "https://github.com/mnfst/modelparams.dev/pull/168"


# "Kimi K3 always reasons and configures reasoning effort with the top-level `reasoning_effort` request field"; it has no
# ``thinking``, and calls a forced tool all the same. The second of them is not out yet.
_EFFORTS = "https://platform.kimi.ai/docs/guide/use-reasoning-effort"
_BY_EFFORT = "thinks by effort"


_KNOWN = Models(
    *alike(("kimi-k2.5", "kimi-k2.6"), Model(context=262_144, longest=65_536, efforts=("enabled",), page=_MODELS)),
    Model("kimi-k2.7-code", context=262_144, longest=65_536, efforts=("enabled",), marks=frozenset({ALWAYS}), page=_ALWAYS_PAGE),
    *alike(("kimi-k3", "kimi-k3.5"), Model(context=1_048_576, longest=131_072, efforts=("low", "high", "max"), usual="max", marks=frozenset({ALWAYS, _BY_EFFORT}), page=_EFFORTS)),
)  # fmt: skip
# "The endpoint Moonshot documents for Claude Code": an effort stands in ``output_config``, and K3 has no ``thinking``.
_MESSAGES_PAGE = "https://metacpan.org/pod/Langertha::Engine::MoonshotAnthropic"
_FORCED_PAGE = "https://github.com/UKGovernmentBEIS/inspect_ai/pull/5152"
# "thinking is enabled but reasoning_content is missing in assistant tool call message"
_MISSING_PAGE = "https://github.com/MoonshotAI/kimi-agent-sdk/issues/169"


class _Messages(MessagesLike):
    """Its Messages, which the chat of the same model answers: that refuses what it refuses there."""

    name = "moonshot-messages"
    messages = table(_MESSAGES_PAGE, {**BLOCKS, "image": IMAGE}, roles=AS_CLAUDE_CODE)
    counted = messages
    models = _KNOWN

    def thinks(self, body: Json, model: Model) -> bool:
        """Say whether it thinks: K3 always does."""
        return _BY_EFFORT in model.marks or super().thinks(body, model)

    def check_model(self, body: Json, model: Model) -> None:
        """Refuse a forced tool and calls without thoughts while it thinks, and that what always thinks does not."""
        by_effort, effort = _BY_EFFORT in model.marks, (body.get("output_config") or {}).get("effort")
        if ALWAYS in model.marks and not by_effort and (body.get("thinking") or {}).get("type") == "disabled":
            said = "invalid thinking: only type=enabled is allowed for this model"
            raise Refused(400, said, rule=ALWAYS, page=model.page)
        if by_effort and effort not in (None, *model.efforts):
            said = f"invalid reasoning_effort: expected one of {', '.join(model.efforts)}"
            raise Refused(400, said, rule="effort", page=_EFFORTS)
        if not self.thinks(body, model):
            return
        if forces(body) and not by_effort:
            choice = "specified" if body["tool_choice"]["type"] == "tool" else "required"
            said = f"tool_choice '{choice}' is incompatible with thinking enabled"
            raise Refused(400, said, rule="forced tool while it thinks", page=_FORCED_PAGE)
        if (number := calls_without_thoughts(body)) is not None:
            said = "thinking is enabled but reasoning_content is missing in assistant tool call message at index"
            raise Refused(400, f"{said} {number}", rule="calls without thoughts", page=_MISSING_PAGE)


class VENDOR(WithMessages, ThinkingChat):
    """Moonshot AI."""

    name = "moonshot"
    key = "sk-strict-moonshot"
    own = _Messages
    messages_path = "/anthropic/v1/messages"
    pages: ClassVar[Sequence[str]] = (_MODELS, _ALWAYS_PAGE, _MESSAGES_PAGE)
    forced_page = _FORCED_PAGE
    models = _KNOWN

    def refuse_key(self, given: str) -> None:
        """Refuse a key."""
        raise Refused(401, "Invalid Authentication", kind="invalid_authentication_error", rule="key")

    def is_off(self, body: Json) -> bool:
        """Say whether a request forbids thinking."""
        return (body.get("thinking") or {}).get("type") == "disabled"

    def forced(self, choice: Any) -> str:
        """Return the words in which a forced tool is refused."""
        return f"tool_choice '{'specified' if is_named(choice) else choice}' is incompatible with thinking enabled"

    def check_model(self, body: Json, model: Model) -> None:
        """Refuse two ways to say how hard to think, beside what the others do."""
        if body.get("thinking") is not None and body.get("reasoning_effort") is not None:
            raise Refused(
                400,
                "cannot specify both 'thinking' and 'reasoning_effort'",
                rule="two efforts",
                page="https://github.com/HKUDS/nanobot/issues/3939",
            )
        if _BY_EFFORT not in model.marks:
            super().check_model(body, model)
            return
        if body.get("thinking") is not None:
            raise Refused(400, "invalid thinking: this model takes reasoning_effort", rule="thinking", page=_EFFORTS)
        if body.get("reasoning_effort") not in (None, *model.efforts):
            raise Refused(
                400,
                f"invalid reasoning_effort: expected one of {', '.join(model.efforts)}",
                rule="effort",
                page=_EFFORTS,
            )
