"""Anthropic: Messages."""

from collections.abc import Sequence
from typing import ClassVar

from strict_vendors.apis.bound_thoughts import CONTROLS
from strict_vendors.apis.messages import MessagesVendor
from strict_vendors.models import Model
from strict_vendors.rules.anthropic import (
    ALWAYS_THINKS,
    API,
    BETA,
    BETA_FIELDS,
    CLEARING,
    COUNT,
    MESSAGE,
    MESSAGES,
    MODELS,
    NO_FORCED_TOOLS,
    PER_TURN,
    ROLES_WITH_SYSTEM,
    TOOL_CHANGES,
    UPDATES,
    WITHIN,
    thinking_with,
)
from strict_vendors.shapes import ListOf, MapOf, Record, Shape, Text
from strict_vendors.vendor import Json, Refused, Request

_THINKING_DOCS = "https://docs.claude.com/en/docs/build-with-claude/extended-thinking"
_CONSIDERATIONS = (
    f"Please consult our documentation at {_THINKING_DOCS}#important-considerations-when-using-extended-thinking"
)
_HIGHER = ("xhigh", "max")

# The newest is in _constants.py of https://github.com/anthropics/anthropic-sdk-python, 2.14.
_NEWEST = "2026-10-21"
VERSIONS = ("2023-01-01", "2023-06-01", _NEWEST)
_VERSIONING = "https://platform.claude.com/docs/en/api/versioning"  # of 2026-10-21, read on 2026-11-29
_GONE = ("temperature", "top_p", "top_k")
_CHANGES = ("tool_addition", "tool_removal")
# "Invalid encrypted_content in search_result block", "Invalid encrypted_index in text block": read on 2026-11-29.
_SEARCHED = "https://code.claude.com/docs/en/errors"
_UNPAIRED = "https://github.com/anthropics/claude-code/issues/65726"
_INSTRUCTIONS = "https://platform.claude.com/docs/build-with-claude/mid-conversation-system-messages"  # 2026-11-29


class Anthropic(MessagesVendor):
    """Anthropic's own servers."""

    name = maker = "anthropic"
    key = "sk-ant-strict-vendor"
    messages = MESSAGES
    counted = COUNT
    models = MODELS
    pages: ClassVar[Sequence[str]] = (
        "https://platform.claude.com/docs/en/api/messages",
        "https://platform.claude.com/docs/en/api/errors",
        "https://github.com/anthropics/anthropic-sdk-python",
    )

    def admit(self, request: Request) -> None:
        """Refuse a request without its key, its version, or with an unknown beta."""
        given = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
        if given != self.key:
            message = "invalid x-api-key" if given else "x-api-key header is required"
            raise Refused(401, message, rule="key", page=self.pages[1])
        if not request.headers.get("anthropic-version"):
            raise Refused(
                400,
                "anthropic-version: header is required",
                rule="version",
                page="https://platform.claude.com/docs/en/api/versioning",
            )
        if request.headers["anthropic-version"] not in VERSIONS:
            raise Refused(
                400,
                f'anthropic-version: "{request.headers["anthropic-version"]}" is not a valid version. For more information,'
                " please refer to https://docs.anthropic.com/en/api/versioning",
                rule="version",
                page="https://platform.claude.com/docs/en/api/versioning",
            )
        unknown = [beta for beta in betas_of(request) if not BETA.fullmatch(beta)]
        if unknown:
            raise Refused(
                400,
                f"Unexpected value(s) {', '.join(f'`{each}`' for each in unknown)} for the `anthropic-beta` header. Please"
                " consult our documentation at docs.anthropic.com or try again without the header.",
                rule="beta",
                page="https://platform.claude.com/docs/en/api/beta-headers",
            )

    def fields_of(self, request: Request, usual: Record) -> Record:
        """Add the fields of the betas that are asked for, and leave out those that the version has no more."""
        betas = betas_of(request)
        more: dict[str, Shape] = {
            name: shape for name, (words, shape) in BETA_FIELDS.items() if any(beta.startswith(words) for beta in betas)
        }
        controls, updates = CONTROLS in betas, any(beta.startswith(UPDATES) for beta in betas)
        if controls or updates:
            more["thinking"] = thinking_with(controls=controls, updates=updates)
        asked = request.body.get("model") if isinstance(request.body, dict) else None
        model = self.models.find(asked) if isinstance(asked, str) else None
        message: dict[str, Shape] = {}
        if (model is not None and WITHIN in model.marks) or any(beta.startswith("mid-conversation") for beta in betas):
            message["role"] = ROLES_WITH_SYSTEM
        if any(beta.startswith(PER_TURN) for beta in betas):
            message["output_config"] = MapOf(nullable=True)
        if any(beta.startswith(CLEARING) for beta in betas):
            message["clear_at"] = Text(only=("next_user_message", "never"), nullable=True)
        if message:
            known = MESSAGE.also((), **message)
            needed = [name for name in known.needed if name != "content" or "output_config" not in message]
            more["messages"] = ListOf(of=Record(fields=known.fields, needed=needed, page=known.page), most=100_000)
        if request.headers.get("anthropic-version") == _NEWEST:
            usual = usual.without(*_GONE)
        return usual.also((), **more) if more else usual

    def tells_dropped(self, request: Request) -> bool:
        """Say whether an answer tells which thoughts were dropped: only with the beta that asks for it."""
        return CONTROLS in betas_of(request)

    def check_version(self, request: Request, body: Json) -> None:
        """Refuse what the newest version of the API has no more, and what stands only in instructions."""
        self._check_instructions(body["messages"], betas_of(request))
        if request.headers.get("anthropic-version") != _NEWEST:
            return
        for number, message in enumerate(body["messages"]):
            for inner, block in enumerate(message["content"] if isinstance(message["content"], list) else ()):
                where = f"messages.{number}.content.{inner}"
                if message["role"] == "assistant" and block["type"] == "document":
                    raise self._wrong(
                        f"{where}: `document` blocks are not permitted in `assistant` messages",
                        "document of the assistant",
                        _VERSIONING,
                    )
                texts = [block, *(block.get("content") or ())] if block["type"] == "search_result" else [block]
                if message["role"] == "user" and any(
                    each["type"] == "text" and each.get("citations") for each in texts
                ):
                    raise self._wrong(
                        f"{where}.text.citations: citations are not permitted in `user` messages",
                        "citations of the user",
                        _VERSIONING,
                    )

    def _check_instructions(self, messages: Sequence[Json], betas: Sequence[str]) -> None:
        """Refuse what only instructions within a conversation may have, elsewhere, and what they may not."""
        for number, message in enumerate(messages):
            where, blocks = f"messages.{number}", message["content"] if isinstance(message["content"], list) else []
            if message["role"] == "system":
                if not message["content"] and not message.get("output_config"):
                    raise self._wrong(f"{where}: system messages must have content", "empty message", _INSTRUCTIONS)
                if any(block["type"] not in {"text", *_CHANGES} for block in blocks):
                    raise self._wrong(f"{where}.content: only text and tool changes", "instructions", _INSTRUCTIONS)
            elif message.get("clear_at"):
                raise self._wrong(f"{where}.clear_at: Extra inputs are not permitted", "clear_at", _INSTRUCTIONS)
            changing = [inner for inner, block in enumerate(blocks) if block["type"] in _CHANGES]
            is_known = message["role"] == "system" and any(beta.startswith(TOOL_CHANGES) for beta in betas)
            if changing and not is_known:
                at = f"{where}.content.{changing[0]}"
                raise self._wrong(f"{at}: tool changes are not permitted here", "tool changes", _INSTRUCTIONS)

    def check_history(self, body: Json, model: Model) -> None:
        """Refuse what others have found, too, and results of tools that it runs without their calls."""
        super().check_history(body, model)
        for number, message in enumerate(body["messages"]):
            called: set[str] = set()
            for inner, block in enumerate(message["content"] if isinstance(message["content"], list) else ()):
                where = f"messages.{number}.content.{inner}"
                if block["type"] == "server_tool_use":
                    called.add(block.get("id", ""))
                if block["type"] == "web_search_tool_result":
                    self._check_found(block, where, called)
                for citation in block.get("citations") or () if block["type"] == "text" else ():
                    if "encrypted_index" in citation and not self.is_signed(citation["encrypted_index"], None):
                        raise self._wrong(f"{where}: Invalid `encrypted_index` in `text` block", "foreign", _SEARCHED)

    def _check_found(self, block: Json, where: str, called: set[str]) -> None:
        kind, name = block["type"], block.get("tool_use_id", "")
        if name not in called:
            raise self._wrong(
                f"{where}: unexpected `tool_use_id` found in `{kind}` blocks: {name}. Each `{kind}` block must have a"
                " corresponding `server_tool_use` block before it.",
                "found without a search",
                _UNPAIRED,
            )
        found = block.get("content")
        for each in found if isinstance(found, list) else ():
            if not self.is_signed(each.get("encrypted_content", ""), None):
                raise self._wrong(
                    f"{where}: Invalid `encrypted_content` in `search_result` block", "foreign", _SEARCHED
                )

    def check_model(self, body: Json, model: Model) -> None:
        """Refuse what this model does not take."""
        if body["max_tokens"] > model.longest:
            raise self._wrong(
                f"max_tokens: {body['max_tokens']} > {model.longest}, which is the maximum allowed number of output tokens"
                f" for {body['model']}",
                "longest answer",
                f"{API}#body-max-tokens",
            )
        for name in ("temperature", "top_p", "top_k"):
            if name in model.not_taken and body.get(name) not in {None, 1}:
                raise self._wrong(f"`{name}` is deprecated for this model.", "no sampling", model.page)
        if "one of temperature and top_p" in model.marks and {"temperature", "top_p"} <= body.keys():
            raise self._wrong(
                "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
                "one of temperature and top_p",
                "https://github.com/SalesforceAIResearch/MCP-Universe/issues/49",
            )
        self._check_thinking(body, model)
        self._check_effort(body, model)
        self._check_tools(body, model)
        if any(not stop.strip() for stop in body.get("stop_sequences") or ()):
            raise self._wrong(
                "stop_sequences: each stop sequence must contain non-whitespace",
                "empty stop",
                f"{API}#body-stop-sequences",
            )

    def _check_thinking(self, body: Json, model: Model) -> None:
        thinking = body.get("thinking") or {}
        kind = thinking.get("type", "disabled")
        if thinking and kind in {"disabled", "between_tools"} and ALWAYS_THINKS in model.marks:
            self._check_least(body, model, kind)
        elif kind == "between_tools":
            raise self._wrong(
                f'"thinking.type.{kind}" is not supported for this model.', "no such thinking", model.page
            )
        if kind == "enabled" and kind not in model.efforts:
            raise self._wrong(
                '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and'
                ' "output_config.effort" to control thinking behavior.',
                "adaptive thinking alone",
                model.page,
            )
        if kind == "adaptive" and kind not in model.efforts:
            raise self._wrong(
                "adaptive thinking is not supported on this model",
                "no adaptive thinking",
                "https://github.com/diegosouzapw/OmniRoute/pull/1563",
            )
        if kind not in {"enabled", "adaptive"}:
            return
        if kind == "enabled" and thinking["budget_tokens"] >= body["max_tokens"]:
            raise self._wrong(
                "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation at"
                f" {_THINKING_DOCS}#max-tokens-and-context-window-size",
                "budget below max_tokens",
                f"{API}#body-thinking",
            )
        considered = "https://platform.claude.com/docs/en/build-with-claude/extended-thinking"
        if body.get("temperature") not in {None, 1}:
            raise self._wrong(
                f"`temperature` may only be set to 1 when thinking is enabled. {_CONSIDERATIONS}",
                "temperature with thinking",
                "https://github.com/MartialBE/one-hub/issues/529",
            )
        if body.get("top_p") is not None and body["top_p"] < 0.95:
            raise self._wrong(
                f"`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled. {_CONSIDERATIONS}",
                "top_p with thinking",
                considered,
            )
        if body.get("top_k") is not None:
            raise self._wrong(
                f"`top_k` must be unset when thinking is enabled. {_CONSIDERATIONS}", "top_k with thinking", considered
            )
        if (body.get("tool_choice") or {}).get("type") in {"any", "tool"}:
            raise self._wrong(
                "Thinking may not be enabled when tool_choice forces tool use.",
                "forced call with thinking",
                "https://github.com/can1357/oh-my-pi/issues/341",
            )

    def _check_least(self, body: Json, model: Model, kind: str) -> None:
        """Refuse that a model does not think, or thinks less than it can."""
        if kind not in model.efforts:
            least = (
                'To turn thinking off on this model, send "thinking": {"type": "between_tools"}.'
                if "between_tools" in model.efforts
                else 'Use "thinking.type.adaptive" and "output_config.effort" to control thinking behavior.'
            )
            raise self._wrong(
                f'"thinking.type.{kind}" is not supported for this model. {least}', "always thinks", model.page
            )
        effort = (body.get("output_config") or {}).get("effort")
        if effort in _HIGHER:
            raise self._wrong(
                f'"thinking.type.{kind}" is not supported with "output_config.effort" "{effort}" on this model.',
                "between tools with such an effort",
                "https://platform.claude.com/docs/en/models/sonnet-5-5/whats-new-sonnet-5-5",
            )

    def _check_effort(self, body: Json, model: Model) -> None:
        effort = (body.get("output_config") or {}).get("effort")
        if effort is None:
            return
        page = "https://github.com/elizaOS/eliza/pull/16175"
        if "effort" not in model.marks:
            raise self._wrong("This model does not support the effort parameter.", "no effort", page)
        if effort in _HIGHER and effort not in model.marks:
            raise self._wrong(
                f"output_config.effort: '{effort}' is not supported for this model.",
                "no such effort",
                "https://platform.claude.com/docs/en/build-with-claude/effort",
            )

    def _check_tools(self, body: Json, model: Model) -> None:
        page = "https://platform.claude.com/docs/en/agents-and-tools/tool-use/implement-tool-use"
        names = [tool.get("name") or tool["type"] for tool in body.get("tools") or ()]
        if len(set(names)) < len(names):
            raise self._wrong("tools: Tool names must be unique.", "two tools with one name", page)
        for number, tool in enumerate(body.get("tools") or ()):
            schema = tool.get("input_schema") or {}
            if any(word in schema for word in ("oneOf", "allOf", "anyOf")):
                raise self._wrong(
                    f"tools.{number}.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top"
                    " level",
                    "schema",
                    "https://github.com/anthropics/claude-code/issues/40075",
                )
        choice = body.get("tool_choice")
        if NO_FORCED_TOOLS in model.marks and (choice or {}).get("type") in {"any", "tool"}:
            raise self._wrong(
                'tool_choice: type "tool" and "any" are not supported for this model.',
                "no forced tools",
                "https://github.com/can1357/oh-my-pi/issues/12939",
            )
        if choice is not None and not names:
            raise self._wrong(
                "tool_choice: tool_choice may only be specified while providing tools", "choice without tools", page
            )
        if choice is not None and choice["type"] == "tool" and choice["name"] not in names:
            raise self._wrong(f"Tool '{choice['name']}' not found in provided tools", "choice of no tool", page)

    @staticmethod
    def _wrong(message: str, rule: str, page: str) -> Refused:
        return Refused(400, message, rule=rule, page=page)


def betas_of(request: Request) -> list[str]:
    """Return the betas that a request asks for."""
    return [beta.strip() for beta in request.headers.get("anthropic-beta", "").split(",") if beta.strip()]


VENDOR = Anthropic
