"""What runs at providers: the one list, by vendor, of the ways to ask for a search or another hosted tool.

Such tools act, search or spend, so a request for one is sent to one provider at a time. A request asks for a tool by
``tools``, by other fields, by a suffix of the model's name, or by the model itself. Each page was read on 2026-11-27.

A model whose every answer has one search, at a price for the request (Perplexity's sonar, OpenAI's search previews),
does not count: the search costs what the answer costs, as tokens do, and an operator who races the model pays for each.
A model that goes on searching counts.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum, auto
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from providers.bodies import encoded, raw_json
from providers.dialects import Loss, Wording
from providers.refusals import UNREADABLE

# Tools by type. An API reads the tools of its own requests; all types that are not the client's run at the provider.

BY_CLIENTS: Final = frozenset({"function", "custom"})
# In OpenAI's newer API. A search among the request's own tools changes nothing, whoever runs it.
ALSO_BY_CLIENTS: Final = frozenset(
    {"apply_patch", "computer", "computer_use", "computer_use_preview", "local_shell", "namespace", "tool_search"}
)
# Items about such tools in the input, and tools that it adds. In a text that quotes one, quotes are escaped.
_ITEM: Final = re.compile(
    rb'"type"\s*:\s*"(additional_tools'
    rb'|(?:apply_patch|computer|custom_tool|local_shell|shell|tool_search)_(?:call|output|call_output))"'
)
BY_CLIENTS_IN: Final = frozenset({("shell", "local")})  # of tools that may also run at the provider
DECLARED: Final = "functionDeclarations"
BY_GOOGLES_CLIENTS: Final = frozenset({DECLARED, "computerUse"})  # of Google's kinds of tools; a client runs these
_DECLARED: Final = BY_GOOGLES_CLIENTS | {"function_declarations", "computer_use"}
_SPECIFIED: Final = frozenset({"toolSpec", "cachePoint"})  # of Converse


class _Way(Enum):
    """How the value of a field asks for a tool."""

    SWITCH = auto()  # anything but null, false, "off", an empty list, or an object that is switched off
    PLUGINS = auto()  # a list of names, or of objects with an id; or an object by name
    GOOGLES = auto()  # a list of tools in Google's form
    CONVERSES = auto()  # a list of tools in the form of Bedrock's Converse
    MODELS = auto()  # a list of models, one of which runs a tool by itself
    PRESET = auto()  # the name of one of Perplexity's presets: others have presets of a prompt, or of routes


class _Asking(NamedTuple):
    """One way of asking beside ``tools``: the place of a field in a request."""

    vendor: str
    place: tuple[str, ...]
    way: _Way = _Way.SWITCH
    searches: bool = True  # what runs is a search of the web, or may be


FIELDS: Final = (
    _Asking("openai", ("web_search_options",)),  # platform.openai.com/docs/guides/tools-web-search
    # learn.microsoft.com/azure/ai-foundry/openai/references/on-your-data
    _Asking("azure", ("data_sources",), searches=False),
    _Asking("azure", ("dataSources",), searches=False),  # of older versions
    _Asking("openrouter", ("plugins",), _Way.PLUGINS),  # openrouter.ai/docs/guides/features/plugins
    _Asking("openrouter", ("models",), _Way.MODELS),  # openrouter.ai/docs/guides/routing/model-fallbacks
    _Asking("perplexity", ("preset",), _Way.PRESET),  # docs.perplexity.ai/docs/agent-api/presets
    _Asking("xai", ("search_parameters",)),  # docs.x.ai/docs/guides/live-search: the mode is auto, on or off
    _Asking("dashscope", ("enable_search",)),  # alibabacloud.com/help/model-studio/web-search
    _Asking("dashscope", ("enable_code_interpreter",), searches=False),
    # ai.google.dev/gemini-api/docs/openai: of a program's SDK the first is what comes, of plain HTTP the second.
    _Asking("gemini", ("google", "tools"), _Way.GOOGLES),
    _Asking("gemini", ("extra_body", "google", "tools"), _Way.GOOGLES),
    _Asking("groq", ("compound_custom", "tools", "enabled_tools")),  # console.groq.com/docs/compound/built-in-tools
    # docs.venice.ai/api-reference/endpoint/chat/completions
    _Asking("venice", ("venice_parameters", "enable_web_search")),
    _Asking("venice", ("venice_parameters", "enable_web_scraping")),
    _Asking("venice", ("venice_parameters", "enable_x_search")),
    # cloud.tencent.com/document/product/1729/111007
    _Asking("tencent", ("enable_enhancement",)),
    _Asking("tencent", ("force_search_enhancement",)),
    _Asking("tencent", ("enable_deep_search",)),
    _Asking("baidu", ("web_search",)),  # cloud.baidu.com/doc/qianfan-api: {"enable": true}
    _Asking("cohere", ("connectors",), _Way.PLUGINS),  # docs.cohere.com/v1/docs/connectors
    # platform.claude.com/docs/en/agents-and-tools/mcp-connector
    _Asking("anthropic", ("mcp_servers",), searches=False),
    # docs.aws.amazon.com/nova/latest/nova2-userguide/web-grounding.html: an operator's, as no client speaks Converse
    _Asking("bedrock", ("toolConfig", "tools"), _Way.CONVERSES),
    # docs.nano-gpt.com/api-reference/endpoint/chat-completion.md: the second is the first one's old name
    _Asking("nano-gpt", ("webSearch",)),
    _Asking("nano-gpt", ("linkup",)),
    _Asking("302.ai", ("web-search",)),  # 302ai-en.apifox.cn/273308610e0
    # sensecore.cn/help/docs/model-as-a-service/nova/chat/ChatCompletions/ChatCompletion; plugins are an object
    _Asking("sensenova", ("know_ids",), searches=False),
)  # fmt: skip
# OpenRouter's plugins that neither act nor cost anything. An unknown plugin may do both.
_HARMLESS: Final = frozenset(
    {"auto-router", "auto-beta-router", "context-compression", "moderation", "pareto-router", "response-healing"}
)
_PRESETS: Final = frozenset(
    {"fast", "low", "medium", "high", "xhigh"}
    | {"fast-search", "pro-search", "deep-research", "advanced-deep-research"}
)
# Ends, or beginnings, of the names of models that run a tool by themselves, or by this suffix.
MODELS: Final = (
    ("openrouter", "*:online"),  # openrouter.ai/announcements/introducing-web-search-via-the-api
    ("openrouter", "*:online:*"),  # followed by another variant
    ("nano-gpt", "*:online/*"),  # docs.nano-gpt.com/api-reference/endpoint/chat-completion.md
    ("nano-gpt", "brave-research*"),
    ("302.ai", "*-web-search"),  # 302ai-en.apifox.cn/273308610e0
    ("jina", "jina-deepsearch*"),  # jina.ai/deepsearch: searches until there is an answer
    ("openrouter", "openrouter/fusion*"),  # openrouter.ai/docs/guides/routing/routers/fusion-router
    # docs.venice.ai/api-reference/endpoint/chat/model_feature_suffix
    ("venice", "*:*enable_web_search=on*"),
    ("venice", "*:*enable_web_search=auto*"),
    ("venice", "*:*enable_web_scraping=true*"),
    ("venice", "*:*enable_x_search=true*"),
    ("groq", "groq/compound*"),  # console.groq.com/docs/compound/systems: up to ten calls of tools for an answer
    ("groq", "compound-beta*"),
    ("volcengine", "bot-20[0-9]*-*"),  # an application with plugins: volcengine.com/docs/82379/1526787
    # Each search is billed, here and at OpenAI: docs.perplexity.ai/getting-started/pricing
    ("perplexity", "*deep-research*"),
)  # fmt: skip

# Vendors whose models search by a tool in the vendor's own API, as the pages above say.
SEARCHING: Final = frozenset({"anthropic", "google", "openai", "vertex_ai", "xai"})
# Vendors whose Responses compact a conversation: developers.openai.com/api/docs/guides/compaction; Azure: Codex's
# source (``supports_remote_compaction``). Read on 2026-11-29.
COMPACTING: Final = frozenset({"azure", "openai"})
FIELD_NAMES: Final = frozenset(each.place[0] for each in FIELDS)
SEARCH_NAMES: Final = frozenset(each.place[0] for each in FIELDS if each.searches)
_OF_FUNCTIONS: Final = frozenset({"function", "name"})  # fields of functions without a type
_OWN_BODY: Final = "extra_body"  # of a program that sends this field literally
_OFF: Final = frozenset({"off", "false", "none", "disabled", "no", ""})
_SWITCHES: Final = ("enable", "enabled", "mode", "search_enable", "type")
# Beginnings of the types of tools that the client runs: in Messages (a date follows Anthropic's), and in fields of no
# known API, such as those that an operator adds to requests. Another unknown type may act, so it counts as hosted.
BY_CLIENTS_ANYWHERE: Final = (
    *(BY_CLIENTS | ALSO_BY_CLIENTS - {"tool_search"}),
    *("bash", "browser_toolset", "memory", "text_editor"),
)
# Among the tools of any API. A search that is switched off counts too: it may be billed.
_SEARCH_TOOL: Final = re.compile(
    rb'"(type"\s*:\s*"(openrouter:)?(web|x|browser)_search|name"\s*:\s*"(\$web_search|nova_grounding)"'
    rb'|google_?search(_?retrieval)?"|(google_?maps|enterprise_?web_?search)"\s*:)',
    re.IGNORECASE,
)


def runs_there(fields: Mapping[str, msgspec.Raw]) -> bool:
    """Whether a body asks by a field beside ``tools`` for what runs at the provider."""
    return not FIELD_NAMES.isdisjoint(fields) and _asks(fields, FIELDS)


def is_added(body: Mapping[str, msgspec.Raw]) -> bool:
    """Whether the fields that an operator adds to each request ask for a hosted tool, in the form of any API."""
    return runs_there(body) or ("tools" in body and runs_among(body["tools"]))


def runs_without(fields: Mapping[str, msgspec.Raw], dropped: Collection[str]) -> bool:
    """Whether a request without the fields and tools at the paths ``dropped`` asks for a hosted tool."""
    left = {name: raw for name, raw in fields.items() if name not in dropped}
    if runs_there(left):
        return True
    tools = _decoded(left["tools"]) if "tools" in left else []
    return has_hosted(
        [
            {name: value for name, value in tool.items() if f"tools[{at}].{name}" not in dropped}
            for at, tool in enumerate(tools if isinstance(tools, list) else [tools])
            if isinstance(tool, dict) and f"tools[{at}]" not in dropped and tool.get("type") not in ALSO_BY_CLIENTS
        ]
    )


def runs_among(tools: msgspec.Raw) -> bool:
    """Whether one of ``tools`` runs at the provider, in the form of any API."""
    return has_hosted(_decoded(tools))


def has_hosted(value: Any) -> bool:
    """Whether one of decoded tools, or of tools within these, runs at the provider, in the form of any API."""
    left = [*value] if isinstance(value, list) else [value]
    while left:
        each = left.pop()
        if not isinstance(each, dict):
            continue
        within = each.get("tools")  # of a namespace
        left += within if isinstance(within, list) else []
        kind = each.get("type")
        if kind and isinstance(kind, str) and not _is_clients(kind, each) and not is_switched_off(each.get(kind, {})):
            return True
        if not kind and _OF_FUNCTIONS.isdisjoint(each) and _has_googles(each):
            return True
    return False


def searches_by_field(fields: Mapping[str, msgspec.Raw]) -> bool:
    """Whether a body lets the vendor search the web by a field beside ``tools``."""
    return not SEARCH_NAMES.isdisjoint(fields) and _asks(fields, _SEARCHES)


def lets_search(fields: Mapping[str, msgspec.Raw]) -> bool:
    """Whether a body lets the vendor search the web, in any dialect."""
    return searches_by_field(fields) or ("tools" in fields and _SEARCH_TOOL.search(fields["tools"]) is not None)


def only_offered(fields: Mapping[str, msgspec.Raw]) -> frozenset[str]:
    """Return the paths of hosted tools that a model may use or not: the client has tools of its own beside them.

    Searches, pages, code, pictures, advice. None if nothing else is offered, as the client then wants the hosted tool;
    nor a tool whose call the client forces.
    """
    tools = _decoded(fields["tools"]) if "tools" in fields else None
    listed = [(at, tool) for at, tool in enumerate(tools if isinstance(tools, list) else ()) if isinstance(tool, dict)]
    if not any(_is_own(tool) for _, tool in listed):
        return frozenset()
    chosen = _chosen(_decoded(fields["tool_choice"])) if "tool_choice" in fields else []
    own = {str(tool.get("name")) for _, tool in listed if _is_own(tool)}
    forced = [] if any(name in own or _is_clients(kind, {}) for kind, name, _ in chosen) else chosen
    found = [
        f"tools[{number}]"
        for number, tool in listed
        if (kind := str(tool.get("type") or "")).startswith(_ONLY_OFFERED)
        and not any(_names(choice, kind, tool) for choice in forced)
    ]
    found += [path for kind, _, path in chosen if not forced and kind.startswith(_ONLY_OFFERED)]
    return frozenset([*found, *(f"tools[{number}].{name}" for number, tool in listed for name in _GOOGLES & {*tool})])


def without_offered(
    fields: Mapping[str, msgspec.Raw], kinds: Collection[str], asked: Mapping[str, msgspec.Raw] | None = None
) -> Wording | None:
    """Return a request without hosted tools of these ``kinds``, which the model refuses.

    ``asked``: the client's request, in whose list they are told by their places, if some are left out already.

    None: there is none, or the client does not only offer one of them, or its history has items of such a kind.
    """
    if not items_of_tools(fields).isdisjoint(kinds):
        return None
    refused = {place: kind for place, kind in types_by_place(fields).items() if kind in kinds}
    if not refused:
        return None
    tools = _decoded(fields["tools"])
    paths = [f"tools[{place}].{kind}" if kind in tools[place] else f"tools[{place}]" for place, kind in refused.items()]
    if not only_offered(fields).issuperset(paths):
        return None
    left = [_left_of(tool, refused.get(place)) for place, tool in enumerate(tools)]
    told = {f"tools[{place}]": f"tools[{at}]" for place, at in enumerate(_places_in(asked or fields, tools))}
    losses = (Loss(told.get(path, path), "this model refuses tools of this type") for path in paths)
    return Wording({**fields, "tools": raw_json([tool for tool in left if tool])}, tuple(losses))


def _places_in(asked: Mapping[str, msgspec.Raw], tools: Sequence[Any]) -> list[int]:
    """Return the place of each of the ``tools`` in the client's own list; none if these are not its tools."""
    found, at = list[int](), -1
    value = _decoded(asked["tools"]) if "tools" in asked else None
    given = value if isinstance(value, list) else []
    for tool in tools:
        at = next((place for place in range(at + 1, len(given)) if given[place] == tool), len(given))
        found.append(at)
    return [] if len(given) in found else found


def _left_of(tool: Any, kind: str | None) -> Any:
    """Return what is left of a tool without a hosted tool of this ``kind``: Google lists several in one object."""
    if kind is None:
        return tool
    return {name: value for name, value in tool.items() if name != kind} if kind in tool else None


def types_of_tools(fields: Mapping[str, msgspec.Raw]) -> frozenset[str]:
    """Return the types of a request's tools, and of items about tools, except functions; of any API that has types."""
    return items_of_tools(fields).union(types_by_place(fields).values())


def items_of_tools(fields: Mapping[str, msgspec.Raw]) -> frozenset[str]:
    """Return the types of a request's items that add tools, or are about calls of tools other than functions."""
    return frozenset(kind.decode() for kind in _ITEM.findall(fields.get("input", b"")))


def types_by_place(fields: Mapping[str, msgspec.Raw]) -> Mapping[int, str]:
    """Return the types of a request's tools, except functions, by their places in the list of tools.

    Google's tools have no type: of these the name of a hosted one, such as ``googleSearch``.
    """
    tools = _decoded(fields["tools"]) if "tools" in fields else None
    kinds = {
        place: tool.get("type") or next((name for name in tool if name in _GOOGLES), None)
        for place, tool in enumerate(tools if isinstance(tools, list) else ())
        if isinstance(tool, dict)
    }
    return {place: kind for place, kind in kinds.items() if isinstance(kind, str) and kind != "function"}


def _chosen(choice: Any) -> list[tuple[str, str, str]]:
    """Return type, name and path of each tool that the model may choose from; none if the choice is free."""
    if not isinstance(choice, dict):
        return []
    kind = choice.get("type")
    if kind == "allowed_tools":
        inner = choice.get(kind, choice)
        listed = inner.get("tools") if isinstance(inner, dict) else None
        among = [(each, f"tool_choice.tools[{number}]") for number, each in enumerate(listed or ())]
    else:
        among = [] if kind in _FREE else [(choice, "tool_choice")]
    return [
        (str(each.get("type") or ""), str(each.get("name") or ""), path)
        for each, path in among
        if isinstance(each, dict)
    ]


def _names(choice: tuple[str, str, str], kind: str, tool: dict[str, Any]) -> bool:
    """Whether a choice names a vendor's ``tool`` of this ``kind``, by name or by type, which may have a date."""
    chosen, name, _ = choice
    return name == tool.get("name") if name else kind.startswith(chosen)


def _is_own(tool: dict[str, Any]) -> bool:
    """Whether the client runs a tool, or the tools in one of Google's lists."""
    kind = tool.get("type")
    if kind and isinstance(kind, str):
        return _is_clients(kind, tool)
    return not _OF_FUNCTIONS.isdisjoint(tool) or not _DECLARED.isdisjoint(tool)


@lru_cache(maxsize=1024)
def runs_itself(model: str) -> bool:
    """Whether a model, by the provider's name, runs a tool beside every answer."""
    return any(fnmatchcase(model.lower(), pattern) for _, pattern in MODELS)


def is_switched_off(value: object) -> bool:
    """Whether the value of a switch, or an object with one, says no."""
    if isinstance(value, str):
        return value.lower() in _OFF
    if isinstance(value, dict):
        return any(name in value and is_switched_off(value[name]) for name in _SWITCHES)
    return value is None or value in (0, [])  # false is 0


# platform.claude.com/docs/agents-and-tools/tool-use/tool-reference has Anthropic's, read on 2026-11-29.
_ONLY_OFFERED: Final = (
    *("advisor", "code_execution", "image_generation", "programmatic_tool_calling", "tool_search_tool"),
    *("web_fetch", "web_search"),
)
_GOOGLES: Final = frozenset({"googleSearch", "google_search", "codeExecution", "code_execution"}) | {
    *("urlContext", "url_context"),
}
_FREE: Final = frozenset({"auto", "any", "none", "required", None})  # choices that name no tool
_SEARCHES: Final = tuple(each for each in FIELDS if each.searches)


def _asks(fields: Mapping[str, msgspec.Raw], ways: tuple[_Asking, ...]) -> bool:
    asked = {name: _decoded(fields[name]) for name in FIELD_NAMES if name in fields}
    return _asks_among(asked, ways)


def _asks_among(asked: Mapping[str, Any], ways: tuple[_Asking, ...]) -> bool:
    if any(_HOW[each.way](_at(asked, each.place)) for each in ways if each.place[0] in asked):
        return True
    own = asked.get(_OWN_BODY)  # what a program's SDK would have put beside the others
    if not isinstance(own, dict):
        return False
    has_tool = has_hosted if ways is FIELDS else _has_search
    return _asks_among({**own, _OWN_BODY: None}, ways) or has_tool(own.get("tools"))


def _at(value: Any, place: tuple[str, ...]) -> Any:
    for name in place:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _decoded(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except UNREADABLE:
        return None


def _is_on(value: Any) -> bool:
    return not is_switched_off(value)


def _has_plugin(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_is_on, value.values()))
    listed = value if isinstance(value, list) else []
    asked = (each.get("id") if isinstance(each, dict) else each for each in listed if _is_on(each))
    return any(not isinstance(each, str) or each not in _HARMLESS for each in asked)


def _has_googles(value: Any) -> bool:
    return _has_others(value, _DECLARED)


def _has_converses(value: Any) -> bool:
    return _has_others(value, _SPECIFIED)


def _has_others(tools: Any, by_clients: frozenset[str]) -> bool:
    listed = tools if isinstance(tools, list) else [tools]
    return any(isinstance(each, dict) and not each.keys() <= by_clients for each in listed)


def _has_model(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(each, str) and runs_itself(each) for each in value)


def _is_preset(value: Any) -> bool:
    return isinstance(value, str) and value in _PRESETS


def _has_search(value: Any) -> bool:
    return value is not None and _SEARCH_TOOL.search(encoded(value)) is not None


def _is_clients(kind: str, tool: dict[str, Any]) -> bool:
    place = tool.get("environment")
    where = place.get("type") if isinstance(place, dict) else None
    return kind.startswith(BY_CLIENTS_ANYWHERE) or (kind, where) in BY_CLIENTS_IN


_HOW: Final[Mapping[_Way, Callable[[Any], bool]]] = {
    _Way.SWITCH: _is_on,
    _Way.PLUGINS: _has_plugin,
    _Way.GOOGLES: _has_googles,
    _Way.CONVERSES: _has_converses,
    _Way.MODELS: _has_model,
    _Way.PRESET: _is_preset,
}
