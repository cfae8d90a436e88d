"""What a client demands of an answer, and what it only prefers: one table of fields, for losses and refusals alike.

A *must* keeps a deployment out that cannot fulfil it, unless its ``drop_params`` says otherwise. A *preference* says
how to answer the same question: deployments that take the preference come first, others are asked without it. A *hint*
affects cost or speed alone. Whatever is left out, the client is told.

A field that is not in the table is a must, unless its value asks for nothing: ``stop: []``, ``n: 1``. Values that
decide the answer (a temperature of 0) are no preferences. Nor are values that no API takes: these are the client's
mistake. The fields and values that programs send unasked are a table of their own: ``defaults.toml``.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from providers.dialects import MARK, SAYS_NOTHING, Fields, Loss, raw_json
from providers.vendors.hosted import runs_among


class Demand(StrEnum):
    """How much a client depends on a field."""

    MUST = "must"
    PREFERENCE = "preference"
    HINT = "hint"


# Fields by path, without numbers, in snake case and without Google's ``generationConfig``: all APIs' names for one
# field have one row. A field within another field has that field's row.
_PREFERENCES: Final = frozenset({
    # How hard, and in which way, to think; the last ones are vendors' own in chat.
    *("reasoning_effort", "reasoning", "thinking", "thinking_config", "output_config.effort", "thinking_budget"),
    *("output_config.task_budget", "messages.output_config", "thinking_level", "thinking_summaries"),
    *("enable_thinking", "include_reasoning", "reasoning_format", "shows_thoughts"),
    *("google.thinking_config", "extra_body.google.thinking_config"),  # ai.google.dev/gemini-api/docs/openai
    "reasoning_split",  # MiniMax's (platform.minimax.io/docs/api-reference/text-openai-api, read on 2026-11-29)
    *("chat_template_kwargs.enable_thinking", "chat_template_kwargs.thinking", "chat_template_args.enable_thinking"),
    # How much to write.
    *("verbosity", "text.verbosity"),
    # How long a conversation is handed on.
    *("truncation", "transforms", "context_management"),
    # Which of a vendor's models answers where one declines; whether a model goes on before a tool has answered.
    *("fallbacks", "access_programs", "tools.async", "input.async"),
    *("tools.function_declarations.behavior", "enable_enhanced_civic_answers"),
    # How closely pictures and sounds are looked at.
    *("media_resolution", "contents.parts.media_resolution", "input.content.resolution"),
    *("image.context_compression", "audio_timestamp"),
    "web_search_options",  # a search that the model may make or not
    "safety_identifier",  # whose request this is, for a vendor's safety
    # Details of tools: examples, when a tool is loaded, in which pieces its arguments come.
    *("tools.defer_loading", "tools.eager_input_streaming", "tools.input_examples", "tools.allowed_callers"),
    *("tools.function_declarations.response", "tools.function_declarations.response_json_schema"),
    "tools.output_schema",
    # Which of Google's models or features answers, where who searches is, and what is told of what runs there.
    *("routing_config", "model_selection_config", "tool_config.retrieval_config"),
    "tool_config.include_server_side_tool_invocations",
    # In which pieces Google tells calls, and when it reads a result of a tool that goes on.
    "tool_config.function_calling_config.stream_function_call_arguments",
    *("contents.parts.function_response.scheduling", "contents.parts.function_response.will_continue"),
    # Of a tool's result, whose text says so as well.
    *("messages.content.is_error", "messages.is_error", "input.is_error"),
})  # fmt: skip
# Fields of an assistant's message in chat that say how the answer was made, at any vendor: clients send all of them
# back. Groq's compound models have ``executed_tools`` (console.groq.com/docs/compound), LiteLLM
# ``provider_specific_fields`` (litellm/types/utils.py of github.com/BerriAI/litellm). Read on 2026-11-29.
OF_ANSWERS: Final = frozenset({
    *("annotations", "executed_tools", "extra_content", "provider_specific_fields", "reasoning", "reasoning_content"),
    *("reasoning_details", "thinking_blocks"),
})  # fmt: skip
_HINTS: Final = frozenset({
    *("metadata", "client_metadata", "labels", "user", "diagnostics", "prediction", "speed"),
    *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", MARK),
    # OpenAI's mark on a part of a prompt.
    *(f"{place}.prompt_cache_breakpoint" for place in ("messages.content", "input.content", "input.output")),
    "stream_options.include_obfuscation",  # padding of OpenAI's streams
    "anthropic_beta",
    "litellm_session_id",  # of each task of Cline's: src/core/api/providers/litellm.ts, read on 2026-11-29
    # What answers say about themselves, and clients send back; who speaks, among several with one role.
    *(f"messages.{name}" for name in OF_ANSWERS),
    *("messages.tool_calls.index", "messages.tool_calls.extra_content", "messages.tool_calls.provider_specific_fields"),
    "messages.tool_calls.function.provider_specific_fields",
    *("messages.name", "messages.phase", "input.phase"),
    "messages.content.image_url.format",  # LiteLLM's: what is behind an address
    # Google's: ids by which calls have their results, else by name and order; who made a call; what a file is called.
    *("contents.parts.function_call.id", "contents.parts.function_response.id", "contents.parts.thought_signature"),
    "contents.parts.thought",
    "input.signature",
    *("contents.parts.inline_data.display_name", "contents.parts.file_data.display_name"),
    *("input.status", "input.content.annotations", "input.content.logprobs"),
    *("input.caller", "messages.content.caller"),  # whether a program of the vendor's has called an earlier function
    "background_options",  # about what runs in the background, which another field decides
    # If a provider does not take these, the answer's later calls are left out: see ``one_call.py``.
    *("parallel_tool_calls", "tool_choice.disable_parallel_tool_use"),
})  # fmt: skip
# Sampling that shapes chance: the values that an API takes, from the least to the most.
_SAMPLING: Final[Mapping[str, tuple[float, float]]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "top_k": (1, 10**6),
    "top_a": (0, 1),
    "min_p": (0, 1),
    "typical_p": (0, 1),
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
    "repetition_penalty": (0, 10),
    "repeat_penalty": (0, 10),
}
# Values that ask for nothing, by path in snake case and without Google's ``generationConfig``. An empty value asks for
# nothing whatever its field is, so only others stand here.
_NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    # ``false`` of any other field may say something: that nothing is kept, that nobody else answers. The last ones are
    # Alibaba's and Perplexity's.
    **dict.fromkeys(("background", "echo", "logprobs", "response_logprobs", "store"), (False,)),
    **dict.fromkeys(("enable_search", "return_images", "return_related_questions"), (False,)),
    **dict.fromkeys(("best_of", "candidate_count", "n", "temperature", "top_p"), (1,)),
    **dict.fromkeys(("frequency_penalty", "no_repeat_ngram_size", "presence_penalty", "top_logprobs"), (0,)),
    **dict.fromkeys(("min_completion_tokens", "min_tokens"), (0,)),
    **dict.fromkeys(("modalities", "response_modalities"), (["text"], ["TEXT"])),
    **dict.fromkeys(("response_format", "text.format"), ({"type": "text"},)),
    "encoding_format": ("float",),
    "function_call": ("auto",),
    "parallel_tool_calls": (True,),
    "response_mime_type": ("text/plain",),
    "service_tier": ("auto", "default"),
    "text": ({"format": {"type": "text"}},),
    "tool_choice": ("auto", {"type": "auto"}),
    "tool_config": ({"functionCallingConfig": {"mode": "AUTO"}},),
    "tool_config.function_calling_config": ({"mode": "AUTO"},),
    "tool_config.function_calling_config.mode": ("AUTO",),
    "truncation": ("disabled",),
    "usage": ({"include": False},),
    "verbosity": ("medium",),
}
# Objects that ask for something also when they are empty: ``web_search_options: {}`` is a search.
_ASK_EMPTY: Final = frozenset(
    {"audio", "compaction", "container", "moderation", "search_parameters", "web_search_options", "webhook_config"}
)
_ASKED: Final = frozenset({"contents", "input", "messages", "model", "prompt"})  # what is answered, and by whom
_DECIDING: Final[Mapping[str, float]] = {"temperature": 0, "top_p": 0, "top_k": 1}  # nothing is left to chance
_SWITCHED_OFF: Final = frozenset({"top_k"})  # servers of one's own have numbers for none: 0, -1
_NONE: Final = frozenset[str]()
_NO_MUSTS: Final = frozenset({Demand.PREFERENCE, Demand.HINT})
_TIERS: Final = frozenset({"service_tier"})
_KEEPS: Final = frozenset({"store"})  # ``false`` is some vendors' default and not others'
_DEARER: Final = frozenset({b'"priority"', b'"fast"', b'"ultrafast"'})  # tiers for which the client pays more
_LONGEST_DEFAULT: Final = 500  # bytes of a field in which a default is looked for
_OF_CALLS: Final = "max_tool_calls"  # of tools that run at the provider
_PROMPTS: Final = ("messages.", "input.")  # below these: how closely a picture or a file is looked at, ``detail``
_DETAILS: Final = frozenset({"messages.content.image_url.detail", "input.content.detail", "input.output.detail"})
_LISTS: Final = ("contents.", "input.", "messages.", "tools.")
# The ids of items in Responses, which no server needs that is sent the whole items. An id alone names what is stored.
_IDS: Final = "input.id"
_PREFIX: Final = "messages.prefix"  # in chat: the last message is the beginning of the answer, or it is not
_IS_PREFIX = re.compile(rb'"prefix"\s*:\s*true')
_WHOLE_ITEMS: Final = frozenset({
    *(b"message", b"reasoning", b"function_call", b"custom_tool_call", b"shell_call", b"apply_patch_call"),
    *(b"function_call_output", b"custom_tool_call_output", b"shell_call_output", b"apply_patch_call_output"),
    *(b"input_text", b"output_text", b"refusal", b"summary_text", b"input_image", b"input_file"),
})  # fmt: skip
_TYPE = re.compile(rb'"type"\s*:\s*"(\w{1,40})')
_ENCRYPTED = re.compile(rb'"encrypted_content"\s*:\s*"')
# An earlier call in chat, and what its client has of it; all else is what some vendor has added.
_CALLS: Final = "messages.tool_calls."
_IN_CALLS: Final = frozenset({"custom.input", "custom.name", "function.arguments", "function.name", "id", "type"})
# Parts that have some in them.
_OF_ALL: Final = frozenset(
    {*(each.removesuffix(".") for each in _LISTS), "stream_options", "tool_choice", "tool_config"}
)
_NUMBER = re.compile(r"\[\d*\]")
# Within one, or added later, a tool has the same fields; in chat some stand in its function.
_NAMESPACE = re.compile(r"^(?:input\.)?tools\.(?:tools|function)\.")
_HUMP = re.compile(r"(?<=[a-z0-9])[A-Z]")
_CONFIG = re.compile(r"generation(?:C|_c)onfig\.")


def demand_of(field: str, fields: Fields, unchosen: frozenset[str] = _NONE) -> Demand | None:
    """Return how much the client depends on the field at this path, in a request with these ``fields``.

    ``unchosen``: sampling that clients of that API do not choose, so any value is a preference. None: the field is not
    in the table, or not with this value.
    """
    name = _plain(field)
    if name not in _KEEPS and is_neutral(field, fields):
        return Demand.HINT
    if name in _TIERS:
        return Demand.MUST if bytes(fields.get(field, b"")).lower() in _DEARER else Demand.HINT
    if name in {_OF_CALLS, _IDS, _PREFIX}:
        return _of_others(name, fields)
    is_chance = name in _SAMPLING and _is_chance(name, fields.get(field), unchosen)
    if is_chance or (name.startswith(_PROMPTS) and name.endswith(".detail")) or _is_within(name, _PREFERENCES):
        return Demand.PREFERENCE
    is_added = name.startswith(_CALLS) and not _is_within(name.removeprefix(_CALLS), _IN_CALLS)
    if is_added or _is_within(name, _HINTS) or MARK in name.split("."):
        return Demand.HINT
    return Demand.PREFERENCE if _is_unasked(name, _said(field, fields)) else None


def is_neutral(field: str, fields: Fields) -> bool:
    """Whether the field at this path asks for nothing, by its value: ``stop: []``. Nothing is lost without it."""
    name, raw = _plain(field), bytes(fields.get(field, b""))
    if raw in SAYS_NOTHING:
        return not (name in _ASKED or "[" in field or (raw == b"{}" and name in _ASK_EMPTY))
    values = _NEUTRAL.get(name)
    return values is not None and any(_is_same(each, _said(field, fields)) for each in values)


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same in JSON: to Python, ``False`` is 0, and ``logprobs: 0`` asks for some."""
    return bool(one == other) and isinstance(one, bool) is isinstance(other, bool)


def _of_others(name: str, fields: Fields) -> Demand | None:
    """Return how much the client depends on a field that only means something beside others of its request."""
    if name == _OF_CALLS:
        return None if "tools" in fields and runs_among(fields["tools"]) else Demand.PREFERENCE
    if name == _PREFIX:
        return None if _IS_PREFIX.search(bytes(fields.get("messages", b""))) else Demand.HINT
    raw = bytes(fields.get("input", b""))
    types = _TYPE.findall(raw)
    is_whole = _WHOLE_ITEMS.issuperset(types) and types.count(b"reasoning") <= len(_ENCRYPTED.findall(raw))
    return Demand.HINT if is_whole else None


def samples(field: str) -> bool:
    """Whether the field at this path shapes chance."""
    return _plain(field) in _SAMPLING


def is_mistaken(field: str, fields: Fields) -> bool:
    """Whether the field at this path shapes chance, and no API takes its value."""
    name, value = _plain(field), fields.get(field, msgspec.Raw(b"null"))
    is_asked = name in _SAMPLING and name not in _SWITCHED_OFF and bytes(value) != b"null"
    return is_asked and _amount(name, value) is None


def may_go(field: str, fields: Fields) -> bool:
    """Whether the field at this path is only a preference or a hint, in a request with these ``fields``."""
    return demand_of(field, fields) in _NO_MUSTS


def members_named(name: str) -> list[str]:
    """Return the paths that end with ``name``, of fields in lists that are no must."""
    return sorted(
        path
        for path in _PREFERENCES | _HINTS | _DETAILS | {_IDS, _PREFIX}
        if path.startswith(_LISTS) and path.endswith(f".{name}")
    )


@cache
def nested_named(name: str) -> tuple[str, ...]:
    """Return the paths that end with ``name``, of fields in an object at the top of a request that are no must."""
    paths = (path for path in _PREFERENCES | _HINTS if "." in path and not path.startswith(_LISTS))
    return tuple(sorted(path for path in paths if path.endswith(f".{name}")))


def of_loss(loss: Loss, fields: Fields, unchosen: frozenset[str] = _NONE) -> Demand:
    """Return how much the client of a request with these ``fields`` depends on what was lost."""
    if loss.nearly:
        return Demand.PREFERENCE
    return Demand.HINT if loss.hint else demand_of(loss.field, fields, unchosen) or Demand.MUST


def demanded(losses: Iterable[Loss], fields: Fields, unchosen: frozenset[str] = _NONE) -> list[Loss]:
    """Return those of ``losses`` without which the request of these ``fields`` is another one."""
    return [loss for loss in losses if of_loss(loss, fields, unchosen) is Demand.MUST]


def _plain(field: str) -> str:
    bare = _NUMBER.sub("", field)
    bare = _NAMESPACE.sub("tools.", bare)
    config = _CONFIG.match(bare)
    return _HUMP.sub(lambda hump: f"_{hump[0]}", bare if config is None else bare[config.end() :]).lower()


def _is_within(name: str, names: frozenset[str]) -> bool:
    while name not in names:
        name, _, inner = name.rpartition(".")
        if not inner:
            return False
    return True


@cache
def at_top() -> frozenset[str]:
    """Return the names at the top of a request that are preferences or hints at some vendor, or have one in them."""
    tops = {path.partition(".")[0] for path in (*_PREFERENCES, *_HINTS, *_SAMPLING, *unasked())}
    return frozenset(tops - _OF_ALL)


@cache
def details_of_tools() -> frozenset[str]:
    """Return the paths in a tool of chat, and in its function, at which some vendor takes a preference."""
    names = {path.removeprefix("tools.") for path in _PREFERENCES if path.startswith("tools.")}
    return frozenset(f"tools.{inner}{name}" for name in names if "." not in name for inner in ("", "function."))


@cache
def unasked() -> Mapping[str, frozenset[str]]:
    """Return what programs send unasked: by field, values as JSON."""
    table = tomllib.loads(files(__package__).joinpath("defaults.toml").read_text(encoding="utf-8"))
    found: dict[str, frozenset[str]] = {}
    for row in table["default"]:
        found[row["field"]] = found.get(row["field"], _NONE) | {_as_json(row["value"])}
    return found


def _as_json(value: Any) -> str:
    return bytes(raw_json(value)).decode()


def _is_unasked(name: str, said: Any) -> bool:
    """Whether programs send a value unasked; or an object of such values and of preferences."""
    if said is None:
        return False
    if isinstance(said, dict):
        inner = [(f"{name}.{_plain(each)}", value) for each, value in said.items()]
        known = _PREFERENCES | _HINTS
        return bool(inner) and all(_is_within(path, known) or _is_unasked(path, value) for path, value in inner)
    return _as_json(said) in unasked().get(name, _NONE)


def _said(field: str, fields: Fields) -> Any:
    """Return the value at a path, if it is short; None without one."""
    name, inner = field, list[str]()
    while name not in fields:
        name, _, last = name.rpartition(".")
        if not name:
            return None
        inner.insert(0, last)
    raw = bytes(fields[name])
    if len(raw) > _LONGEST_DEFAULT:
        return None
    try:
        said = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return None
    for each in inner:
        said = said.get(each) if isinstance(said, dict) else None
    return said


def _is_chance(name: str, value: msgspec.Raw | None, unchosen: frozenset[str]) -> bool:
    said = _amount(name, value)
    return said is not None and (said != _DECIDING.get(name) or name in unchosen)


def _amount(name: str, value: msgspec.Raw | None) -> float | None:
    """Return a value of sampling that some API takes; None: it is none."""
    try:
        said = msgspec.json.decode(b"null" if value is None else value, type=float | None)
    except msgspec.DecodeError:
        return None
    least, most = _SAMPLING[name]
    return said if said is not None and least <= said <= most else None
