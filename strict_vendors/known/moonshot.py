"""Moonshot: Kimi, which thinks by default; read on 2026-11-29."""

from collections.abc import Sequence
from typing import Any, ClassVar

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


class VENDOR(ThinkingChat):
    """Moonshot AI."""

    name = "moonshot"
    key = "sk-strict-moonshot"
    pages: ClassVar[Sequence[str]] = (_MODELS, _ALWAYS_PAGE)
    forced_page = "https://github.com/UKGovernmentBEIS/inspect_ai/pull/5152"
    models = Models(
        *alike(("kimi-k2.5", "kimi-k2.6"), Model(context=262_144, longest=65_536, efforts=("enabled",), page=_MODELS)),
        Model("kimi-k2.7-code", context=262_144, longest=65_536, efforts=("enabled",), marks=frozenset({ALWAYS}), page=_ALWAYS_PAGE),
        *alike(("kimi-k3", "kimi-k3.5"), Model(context=1_048_576, longest=131_072, efforts=("low", "high", "max"), usual="max", marks=frozenset({ALWAYS, _BY_EFFORT}), page=_EFFORTS)),
    )  # fmt: skip

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
