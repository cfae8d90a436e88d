"""What both directions need of a Messages request, and what other APIs read in a chat request as Messages does."""

import hashlib
import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

import msgspec

from providers.dialects.chat.references import cites_pages
from providers.dialects.reading import Object, RawObject, object_at, objects_at, present, raw_text_at, text_at
from providers.dialects.wording import (
    ANTHROPIC,
    CANNOT_STOP_THINKING,
    FORBIDDEN,
    GOOGLES,
    REDACTED,
    SAYS_NOTHING,
    SIGNED,
    THOUGHTS,
    Fields,
    Losses,
    Malformed,
    arguments_object,
    decoded,
    is_string,
    raw_json,
    signer_of,
)
from providers.models import LeastThinking
from providers.refusals import UNREADABLE

CANNOT_THINK_ON = "Messages cannot continue reasoning after a tool without the earlier thinking blocks"


def arguments_at(function: RawObject, path: str, losses: Losses, api: str) -> msgspec.Raw:
    """Return the arguments of the ``function`` called at ``path``, as ``api`` takes them: an object.

    Arguments that are no object (``"[1]"``) are a loss, and are replaced by an empty object.

    Raises:
        Malformed: the arguments are no text.

    """
    arguments = arguments_object(decoded(function.get("arguments"), str, f"{path}.arguments") or "")
    if arguments is None:
        losses.add(f"{path}.arguments", f"{api} takes arguments only as a JSON object")
        return msgspec.Raw(b"{}")
    return arguments


def lose_stream_options(asked: RawObject, losses: Losses, reason: str) -> None:
    """Note what chat's ``stream_options`` ask for besides the usage: the usage is always sent.

    Raises:
        Malformed: the field is no object.

    """
    path, padding = "stream_options", "include_obfuscation"
    options = object_at(asked.get(path), path)
    losses.lose(options, padding, path, "translated streams are not padded", b"false", b"null", hint=True)
    losses.rest(options, (padding, "include_usage"), path, reason)


OF_DOCUMENT = ("citations", "context")  # beside a file, in its part: the pivot's own fields, not chat's

# Parts of a chat request that Messages, Converse and Gemini read alike. ``api``: the name of the API that is asked.


def request_of(fields: Mapping[str, msgspec.Raw]) -> tuple[RawObject, list[RawObject]]:
    """Return the fields of a request that are not null, and its messages.

    Raises:
        Malformed: there are no messages.

    """
    asked = present(fields)
    messages = objects_at(asked.get("messages"), "messages")
    if not messages:
        raise Malformed("'messages' must have at least one message", "messages")
    return asked, messages


def stops_of(asked: RawObject) -> list[str]:
    """Return the stop sequences; a request may state a single one without a list.

    Raises:
        Malformed: the stop sequences are no texts.

    """
    if "stop" not in asked:
        return []
    alone = is_string(asked["stop"])
    stops: list[str] = [decoded(asked["stop"], str, "stop")] if alone else decoded(asked["stop"], list[str], "stop")
    return stops


def budget_of(asked: RawObject) -> int | None:
    """Return how many tokens of thinking an effort stands for: from the pivot's own field, not chat's.

    Raises:
        Malformed: the field is no number.

    """
    if "reasoning_effort" not in asked:
        return None
    budget: int | None = decoded(asked.pop("thinking_budget", None), int, "thinking_budget")
    return budget


def lose_rest_of_answer(
    message: RawObject,
    path: str,
    losses: Losses,
    *,
    said: Container[str],
    thoughts: Container[str],
    unsigned: str,
    api: str,
) -> None:
    """Note the fields of an assistant's message, except those in ``said`` and in ``thoughts``: these are sent back.

    ``unsigned``: why other thoughts are not sent back.
    """
    no_field, rest = f"{api} has no such field", dict(message)
    for name in sorted(message.keys() & set(THOUGHTS)):
        if bytes(rest.pop(name)) not in SAYS_NOTHING and name not in thoughts:
            losses.add(f"{path}.{name}", unsigned, hint=True)
    for name in ("annotations", "function_call"):  # SDKs send an answer back unchanged, empty fields included
        if bytes(rest.get(name, b"")) == b"[]":
            del rest[name]
    if "annotations" in rest and cites_pages(rest["annotations"]):
        losses.add(f"{path}.annotations", no_field, hint=True)
        del rest["annotations"]
    losses.rest(rest, said, path, no_field)


DEFAULTS: Mapping[str, tuple[bytes, ...]] = {  # default values
    "best_of": (b"1",),
    "echo": (b"false",),
    "frequency_penalty": (b"0", b"0.0"),
    "function_call": (b'"none"', b'"auto"'),
    "functions": (b"[]",),
    "include": (b"[]",),
    "logit_bias": (b"{}",),
    "logprobs": (b"false",),
    "metadata": (b"{}",),
    "modalities": (b'["text"]', b'[ "text" ]'),
    "n": (b"1",),
    "presence_penalty": (b"0", b"0.0"),
    "store": (b"false",),
    "top_logprobs": (b"0",),
    "verbosity": (b'"medium"',),
}


def limit_of(asked: RawObject, losses: Losses, api: str) -> int | None:
    """Return the most tokens of an answer; None: the request sets no limit.

    Raises:
        Malformed: the limit is no number, or below 1.

    """
    old = decoded(asked.get("max_tokens"), int, "max_tokens")
    new = decoded(asked.get("max_completion_tokens"), int, "max_completion_tokens")
    if new is not None and old is not None and old != new:
        losses.add("max_tokens", f"{api} has one limit, and max_completion_tokens is it")
    limit: int | None = old if new is None else new
    if limit is not None and limit < 1:
        raise Malformed("'max_completion_tokens' must be at least 1", "max_completion_tokens")
    return limit


def function_of(tool: RawObject, path: str, losses: Losses, api: str) -> tuple[str, RawObject, Object] | None:
    """Return the path, the fields and the schema of a tool's function; None if the tool is no function.

    Raises:
        Malformed: the tool is not valid in chat.

    """
    kind = text_at(tool, "type", path)
    if kind != "function":
        losses.add(path, f"{api} has no tool of type {kind!r}")
        return None
    at, reason = f"{path}.function", f"{api} has no such field"
    function = object_at(tool.get("function"), at)
    schema: Object = dict(object_at(function.get("parameters"), f"{at}.parameters"))
    if "type" not in schema:  # Messages requires a type, chat implies one
        schema = {"type": "object", **schema}
    losses.rest(tool, ("type", "function", "cache_control"), path, reason)
    losses.rest(function, ("name", "description", "parameters", "strict"), at, reason)
    return at, function, schema


def chosen_tool(asked: RawObject) -> str | msgspec.Raw | None:
    """Return chat's word for the choice of tools, or the one tool's name, as JSON; None: no choice, or another kind.

    Raises:
        Malformed: the choice is not valid in chat.

    """
    given = asked.get("tool_choice")
    if given is None:
        return None
    if is_string(given):
        word: str = decoded(given, str, "tool_choice")
        if word not in {"auto", "none", "required"}:
            raise Malformed("'tool_choice' must be none, auto, required or a tool", "tool_choice")
        return word
    choice = object_at(given, "tool_choice")
    if text_at(choice, "type", "tool_choice") != "function":
        return None
    function = object_at(choice.get("function"), "tool_choice.function")
    return raw_text_at(function, "name", "tool_choice.function")


def form_of(asked: RawObject, losses: Losses, api: str) -> RawObject | None:
    """Return what the request says about a JSON schema for the answer, with the schema; None: text is asked for.

    Raises:
        Malformed: the format is not valid in chat.

    """
    form = object_at(asked.get("response_format"), "response_format")
    kind = text_at(form, "type", "response_format") if form else "text"
    if kind == "text":
        return None
    if kind != "json_schema":
        losses.add("response_format", f"{api} answers as text or by a JSON schema, not as {kind!r}")
        return None
    path = "response_format.json_schema"
    given = object_at(form.get("json_schema"), path)
    if "schema" not in given:
        losses.add(path, f"{api} needs the schema itself")
        return None
    losses.rest(given, ("name", "description", "schema", "strict"), path, f"{api} has no such field")
    return given


# Names of users. Each of the two APIs refuses some names that the other accepts: a hash is sent in place of these.

_LONGEST_IN_CHAT = 64  # characters
_LONGEST_IN_MESSAGES = 256
_TELLS_WHO = re.compile(r"[^@\s]+@[^@\s][^@\s.]*\.[^@\s]+|\+?[\d\s().-]{7,}")  # an e-mail address or a telephone number


def name_in_chat(name: str, losses: Losses) -> str:
    """Return Messages' ``metadata.user_id`` as chat's ``user``. Claude Code's has more than a hundred characters."""
    if len(name) <= _LONGEST_IN_CHAT:
        return name
    losses.add("metadata.user_id", f"chat takes {_LONGEST_IN_CHAT} characters at most, so it gets a hash", hint=True)
    return _hash(name)


def name_in_messages(name: str, field: str, losses: Losses) -> str:
    """Return chat's name of a user, in field ``field``, as ``metadata.user_id``."""
    if len(name) <= _LONGEST_IN_MESSAGES and not _TELLS_WHO.fullmatch(name):
        return name
    losses.add(field, "Messages takes no long or personal names, so it gets a hash", hint=True)
    return _hash(name)


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


# Ids of tool calls in the characters that Messages allows: a conversation with other ids is refused.


def allowed_id(call_id: str) -> str:
    """Return a tool call's id in letters, digits, ``_`` and ``-``; equal ids stay equal, different ids different.

    Some chat providers number calls ``functions.get_weather:0``.
    """
    return FORBIDDEN.sub(lambda letter: f"_{ord(letter[0]):x}_", call_id)


# Reasoning effort: chat's levels, and their counterparts in Messages, an effort or a budget of thinking tokens. Chat
# has the levels of Messages (low to max), and none and minimal. Newer models decide themselves how long to think, and
# take an effort. Older models take a budget, here with LiteLLM's figures. A client's budget becomes the highest level
# whose figure the budget reaches, at most ``high``, which every reasoning model in chat accepts.

_EFFORTS: Mapping[str, str] = {  # from chat to Messages, which has nothing below low
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
_BUDGETS_TOKENS: Mapping[str, int] = {
    "minimal": 1024,
    "low": 1024,
    "medium": 2048,
    "high": 4096,
    "xhigh": 8192,
    "max": 16384,
}
_LEAST_BUDGET_TOKENS = 1024  # the API's minimum


def effort_of_budget(budget_tokens: int) -> str:
    """Return chat's level for a budget of thinking tokens."""
    if budget_tokens < _BUDGETS_TOKENS["medium"]:
        return "low"
    return "medium" if budget_tokens < _BUDGETS_TOKENS["high"] else "high"


def budget_of_effort(effort: str, limit: int) -> int | None:
    """Return a budget of thinking tokens for a level, with a quarter of ``limit`` left; None: there is no room."""
    budget = min(_BUDGETS_TOKENS.get(effort, _BUDGETS_TOKENS["high"]), limit * 3 // 4)
    return None if limit <= _LEAST_BUDGET_TOKENS else max(_LEAST_BUDGET_TOKENS, budget)


def thinking_of_effort(
    effort: str | None,
    said: Object,
    losses: Losses,
    *,
    adaptive: bool,
    limited: bool,
    least: LeastThinking,
    budget: int | None = None,
) -> Object:
    """Return the fields of a Messages request for an effort. ``said``: the fields that the request has already.

    The budget counts towards max_tokens. So max_tokens grows by the budget, unless max_tokens is the client's limit or
    the highest that the model takes (``limited``). ``least``: what the model does if it cannot stop thinking.
    ``budget``: the client's own budget, if the effort stands for one.
    """
    if effort is None:
        return {}
    if effort == "none":
        return _as_little_as_possible(losses, least)
    limit: int = said["max_tokens"]
    if reason := _reason_not_to_think(effort, said, adaptive=adaptive, limit=limit if limited else None):
        losses.add("reasoning_effort", reason)
        return {}
    if not adaptive and lacks_thoughts(said["messages"]):
        # A hint: an agent's task must not fail in the middle, and the API itself continues without thinking here.
        losses.add("reasoning_effort", CANNOT_THINK_ON, hint=True)
        return {}
    if adaptive:  # without ``display``, newer models do not send their thinking
        thinking = {"type": "adaptive", "display": "summarized"}
        return {"thinking": thinking, "output_config": {"effort": _EFFORTS[effort]}}
    stated, budget = budget, _BUDGETS_TOKENS[effort] if budget is None else max(budget, _LEAST_BUDGET_TOKENS)
    if not limited:
        limit += budget
    elif stated is not None and budget >= limit:  # Gemini takes such a budget; a quarter is left for the answer
        budget = max(_LEAST_BUDGET_TOKENS, limit * 3 // 4)
    return {"thinking": {"type": "enabled", "budget_tokens": min(budget, limit - 1)}, "max_tokens": limit}


def thinking_as(fields: Fields, kind: str) -> Fields:
    """Return a Messages request with the kind of thinking that its model takes: enabled or adaptive.

    The request has no thinking if the API would refuse the budget, and stays unchanged if it is not valid.
    """
    try:
        thinking, config = (object_at(fields.get(name), name) for name in ("thinking", "output_config"))
        shown = {name: raw for name, raw in thinking.items() if name == "display"}
        if kind == "adaptive":
            budget = decoded(thinking.get("budget_tokens"), int, "thinking.budget_tokens")
            effort = {} if budget is None else {"effort": raw_json(effort_of_budget(budget))}
            told = {"output_config": raw_json({**effort, **config})} if effort or config else {}
            return {**fields, "thinking": raw_json({"type": kind, **shown}), **told}
        asked = decoded(config.get("effort"), str, "output_config.effort")
        limit = decoded(fields.get("max_tokens"), int, "max_tokens") or 0
        turns = msgspec.json.decode(fields.get("messages", b"[]"), type=list[dict[str, Any]])
        if limit <= _LEAST_BUDGET_TOKENS or lacks_thoughts(turns):
            return {name: raw for name, raw in fields.items() if name != "thinking"}
    except (Malformed, *UNREADABLE):
        return fields
    budget = min(_BUDGETS_TOKENS.get(asked or "high", _BUDGETS_TOKENS["high"]), limit - 1)
    return {**fields, "thinking": raw_json({"type": kind, "budget_tokens": budget, **shown})}


def _as_little_as_possible(losses: Losses, least: LeastThinking) -> Object:
    if least == "off":
        return {"thinking": {"type": "disabled"}}
    losses.add("reasoning_effort", CANNOT_STOP_THINKING, hint=True)
    return {"thinking": {"type": least}} if least == "between_tools" else {"output_config": {"effort": least}}


def _reason_not_to_think(effort: str, said: Object, *, adaptive: bool, limit: int | None) -> str | None:
    """Return why the API would refuse this effort; None: the API would accept it."""
    if effort not in _EFFORTS:
        return f"Messages has no effort {effort!r}"
    if said.get("tool_choice", {}).get("type") in {"any", "tool"}:
        return "Messages has no thinking when a tool call is forced"
    if not adaptive and limit is not None and limit <= _LEAST_BUDGET_TOKENS:
        return f"Messages needs a limit over {_LEAST_BUDGET_TOKENS} tokens to think"
    return None


def lacks_thoughts(turns: Sequence[Object]) -> bool:
    """Whether the last turn has results of tool calls, and the turn with these calls does not begin with thinking."""
    content = turns[-1].get("content") if turns else None
    if not isinstance(content, list) or not any(_kind(block) == "tool_result" for block in content):
        return False
    called = turns[-2].get("content") if len(turns) > 1 else None
    return not isinstance(called, list) or not called or _kind(called[0]) not in {"thinking", "redacted_thinking"}


def _kind(block: Object) -> str:
    kind = block.get("type")
    return (decoded(kind, str, "type") or "") if isinstance(kind, msgspec.Raw) else str(kind)


# Thoughts that a model has signed or encrypted: the blocks are the same in Messages and in LiteLLM's chat.

_SIGNED_FIELDS: Mapping[bytes, tuple[str, str]] = {  # by a block's type: the field of its text, the field for its maker
    b'"thinking"': ("thinking", "signature"),
    b'"redacted_thinking"': ("type", "data"),
}


def signed_thought(block: RawObject, signer: str = ANTHROPIC) -> Object | None:
    """Return a block of thinking that can be sent back to the model of ``signer``, which made it; None: it cannot."""
    text, bound = _SIGNED_FIELDS.get(bytes(block.get("type", b"")), ("", ""))
    if text not in block or not bytes(block.get(bound, b"")).startswith(b'"') or bytes(block[bound]) == b'""':
        return None
    if bytes(block[bound]).startswith(GOOGLES) or signer_of(block) != signer:
        return None
    return {name: block[name] for name in dict.fromkeys(("type", text, bound))}


def signed_thoughts(message: RawObject) -> list[Object]:
    """Return the signed blocks of an assistant's message: LiteLLM's ``thinking_blocks``, or OpenRouter's details."""
    try:
        blocks = objects_at(message.get("thinking_blocks"), "thinking_blocks")
        blocks = blocks or list(map(_of_detail, objects_at(message.get("reasoning_details"), "reasoning_details")))
    except Malformed:
        return []
    return [block for block in map(signed_thought, blocks) if block is not None]


def _of_detail(detail: RawObject) -> RawObject:
    """Return one of OpenRouter's details as a block; empty if another vendor's model made it."""
    if not bytes(detail.get("format", b'"anthropic"')).startswith(b'"anthropic'):
        return {}
    kinds = {
        b'"reasoning.text"': ("thinking", "text", "signature"),
        b'"reasoning.encrypted"': (REDACTED, "data", "data"),
    }
    kind, text, bound = kinds.get(bytes(detail.get("type", b"")), ("", "", ""))
    if text not in detail or bound not in detail:
        return {}
    own = {"thinking": detail[text], "signature": detail[bound]} if kind == SIGNED else {"data": detail[bound]}
    return {"type": raw_json(kind), **own}


# JSON schemas for structured output in Messages: fewer keywords than in chat, and closed objects.

_UNKNOWN = frozenset(  # keywords that Messages answers with an error
    {
        "contains",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "if",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "not",
        "oneOf",
        "patternProperties",
        "prefixItems",
        "propertyNames",
        "then",
        "uniqueItems",
    }
)
_LONGEST_TOLD = 100  # characters of a keyword's value
_INNER = ("items",)  # keywords with one schema
_LISTED = ("allOf", "anyOf")  # keywords with a list of schemas
_NAMED = ("$defs", "definitions", "properties")  # keywords with an object of schemas


class KeptSchema:
    """A schema that Messages supports, made from a client's.

    An object that does not mention additional properties is closed: all that the closed schema allows, the client's
    allows too. A short keyword that Messages lacks is written into the description, as Anthropic's SDKs do
    (platform.claude.com/docs/en/build-with-claude/structured-outputs#how-sdk-transformation-works, read on 2026-11-29).
    """

    def __init__(self, raw: msgspec.Raw, path: str) -> None:
        """Read the schema at ``path``.

        Raises:
            Malformed: the schema is not a JSON object.

        """
        self.lost: list[str] = []  # paths of unsupported keywords
        self._changed = False
        try:
            schema = msgspec.json.decode(raw, type=Object)
            kept = self._keep(schema, path)
        except UNREADABLE as error:
            raise Malformed(f"{path!r} is invalid: {error}", path) from None
        self.kept: Any = kept if self._changed else raw  # unchanged, if every keyword is supported

    def _keep(self, schema: Object, path: str) -> Object:
        kept: Object = {}
        told: list[str] = []
        for name, value in schema.items():
            at = f"{path}.{name}"
            if name in _UNKNOWN or not _is_known(name, value):
                self.lost.append(at)
                self._changed = True
                told += [f"{name}: {said}"] if len(said := bytes(raw_json(value)).decode()) <= _LONGEST_TOLD else []
            elif name in _INNER and isinstance(value, dict):
                kept[name] = self._keep(value, at)
            elif name in _LISTED and isinstance(value, list):
                kept[name] = [self._any(one, f"{at}[{number}]") for number, one in enumerate(value)]
            elif name in _NAMED and isinstance(value, dict):
                kept[name] = {key: self._any(one, f"{at}.{key}") for key, one in value.items()}
            else:
                kept[name] = value
        if "additionalProperties" not in kept and _is_object(schema):
            kept["additionalProperties"] = False
            self._changed = True
        if told:
            before = kept.get("description")
            words = f"{{{', '.join(told)}}}"
            kept["description"] = f"{before}\n\n{words}" if before and isinstance(before, str) else words
        return kept

    def _any(self, schema: Any, path: str) -> Any:
        return self._keep(schema, path) if isinstance(schema, dict) else schema


def _is_known(name: str, value: Any) -> bool:
    """Whether Messages supports this value of a keyword."""
    if name == "additionalProperties":
        return value is False
    return name != "minItems" or value in (0, 1)


def _is_object(schema: Object) -> bool:
    kind = schema.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in schema
