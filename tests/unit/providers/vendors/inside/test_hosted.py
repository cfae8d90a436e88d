"""What runs at a provider is told in all ways of asking for it; what is switched off, or runs at the client, is not."""

from typing import Any

import msgspec
import pytest

from gateway.api import ParsedRequest, read_chat
from gateway.api.endpoints.completions import read_completion
from gateway.api.endpoints.gemini import read_gemini
from gateway.api.endpoints.messages import read_messages
from gateway.api.endpoints.responses import read_response
from gateway.http import Contents
from providers import is_added, lets_search, runs_itself, searches_by_field
from providers.vendors import runs_there

PROMPT: dict[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "x"}]},
    "completions": {"prompt": "x"},
    "responses": {"input": "x", "store": False},
    "messages": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 9},
    "gemini": {"contents": [{"parts": [{"text": "x"}]}], "stream": True},
}


def raw(said: dict[str, Any]) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in said.items()}


def parsed(api: str, **said: Any) -> ParsedRequest:
    fields = raw({"model": "m", **PROMPT[api], **said})
    contents = Contents(fields, sum(map(len, fields.values())))
    match api:
        case "chat":
            return read_chat(contents, None)
        case "completions":
            return read_completion(contents, None)
        case "responses":
            return read_response(contents, None, store=False)
        case "messages":
            return read_messages(contents, None)
    return read_gemini(contents, None)


ASKING: list[dict[str, Any]] = [
    {"web_search_options": {}},
    {"web_search_options": {"search_context_size": "low"}},
    {"plugins": [{"id": "web"}]},
    {"plugins": [{"id": "response-healing"}, {"id": "web", "max_results": 1}]},
    {"plugins": [{"id": "file-parser", "pdf": {"engine": "mistral-ocr"}}]},
    {"plugins": ["plugin_web_search"]},
    {"search_parameters": {}},
    {"search_parameters": {"mode": "auto"}},
    {"search_parameters": {"mode": "on", "sources": [{"type": "x"}]}},
    {"enable_search": True},
    {"enable_code_interpreter": True},
    {"extra_body": {"enable_search": True}},
    {"extra_body": {"google": {"tools": [{"google_search": {}}]}}},
    {"extra_body": {"google": {"tools": [{"urlContext": {}}]}}},
    {"google": {"tools": [{"functionDeclarations": []}, {"code_execution": {}}]}},
    {"compound_custom": {"tools": {"enabled_tools": ["web_search"]}}},
    {"venice_parameters": {"enable_web_search": "auto"}},
    {"venice_parameters": {"enable_web_search": "off", "enable_web_scraping": True}},
    {"enable_enhancement": True},
    {"web_search": {"enable": True}},
    {"connectors": [{"id": "web-search"}]},
    {"data_sources": [{"type": "azure_search"}]},
    {"models": ["openai/gpt-5", "openai/gpt-5:online"]},
    {"preset": "pro-search"},
    {"mcp_servers": [{"type": "url", "url": "https://example.com/sse", "name": "x"}]},
    {"webSearch": {"enabled": True, "provider": "exa"}},
    {"linkup": {"enabled": True}},
    {"web-search": True},
    {"plugins": {"web_search": {"search_enable": True}}},
    {"know_ids": ["k"]},
    {"toolConfig": {"tools": [{"systemTool": {"name": "nova_grounding"}}]}},
    {"google": {"tools": {"google_maps": {}}}},
    {"dataSources": [{"type": "AzureCognitiveSearch"}]},
    {"extra_body": {"tools": [{"type": "web_search"}]}},
    {"extra_body": {"plugins": [{"id": "web"}]}},
]
NOT_ASKING: list[dict[str, Any]] = [
    {},
    {"web_search_options": None},
    {"plugins": None},
    {"plugins": []},
    {"plugins": [{"id": "web", "enabled": False}]},
    {"plugins": [{"id": "response-healing"}, {"id": "context-compression"}]},
    {"search_parameters": {"mode": "off"}},
    {"search_parameters": None},
    {"enable_search": False},
    {"enable_search": None},
    {"extra_body": {"enable_search": False}},
    {"extra_body": {"google": {"thinking_config": {"thinking_budget": 9}}}},
    {"extra_body": {"google": {"tools": [{"function_declarations": []}]}}},
    {"google": {"thinking_config": {"include_thoughts": True}}},
    {"compound_custom": {"tools": {"enabled_tools": []}}},
    {"compound_custom": {"models": {"reasoning_model": "m"}}},
    {"venice_parameters": {"include_venice_system_prompt": False}},
    {"venice_parameters": {"enable_web_search": "off"}},
    {"web_search": {"enable": False}},
    {"data_sources": []},
    {"models": ["openai/gpt-5"]},
    {"preset": "email-copywriter"},
    {"extra_body": "odd"},
    {"plugins": "odd"},
    {"google": {"tools": None}},
    {"mcp_servers": []},
    {"webSearch": {"enabled": False, "provider": "exa"}},
    {"plugins": {"web_search": {"search_enable": False}}},
    {"plugins": {}},
    {"know_ids": []},
    {"toolConfig": {"tools": [{"toolSpec": {"name": "f"}}, {"cachePoint": {"type": "default"}}]}},
    {"extra_body": {"tools": [{"type": "function", "function": {"name": "f"}}, {"function": {"name": "g"}}]}},
]


@pytest.mark.parametrize("said", ASKING, ids=str)
@pytest.mark.parametrize("api", PROMPT)
def test_a_request_with_a_field_that_asks_for_it_is_sent_once(api: str, said: dict[str, Any]) -> None:
    assert parsed(api, **said).stateful


@pytest.mark.parametrize("said", NOT_ASKING, ids=str)
@pytest.mark.parametrize("api", PROMPT)
def test_what_is_switched_off_or_not_asked_for_is_raced(api: str, said: dict[str, Any]) -> None:
    assert not parsed(api, **said).stateful


TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("tool", "there"),
    [
        (TOOL, False),
        ({"type": "custom", "custom": {"name": "f"}}, False),
        ({"type": "web_search"}, True),
        ({"type": "web_search", "web_search": {"enable": True, "search_result": True}}, True),
        ({"type": "web_search", "web_search": {"search_engine": "search_std"}}, True),
        ({"type": "web_search", "web_search": {"enable": False}}, False),
        ({"type": "builtin_function", "function": {"name": "$web_search"}}, True),
        ({"type": "browser_search"}, True),
        ({"type": "openrouter:web_search"}, True),
        ({"type": "connector", "connector_id": "c"}, True),
        ({"type": "document_library", "library_ids": ["l"]}, True),
        ({"type": "web_search", "web_search": {"search_enable": False}}, False),
        ({"googleSearch": {}}, True),
        ({"google_search_retrieval": {}}, True),
        ({"urlContext": {}}, True),
        ({"codeExecution": {}}, True),
        ({"functionDeclarations": [{"name": "f"}]}, False),
        ({"function": {"name": "g"}}, False),
        ({"name": "g", "parameters": {}}, False),
    ],
    ids=str,
)
def test_a_tool_of_chats_runs_there_unless_it_is_the_clients_or_off(tool: dict[str, Any], there: bool) -> None:
    assert parsed("chat", tools=[TOOL, tool]).stateful is there


@pytest.mark.parametrize(
    ("tool", "there"),
    [
        ({"name": "f", "input_schema": {}}, False),
        ({"type": "custom", "name": "f", "input_schema": {}}, False),
        ({"type": "bash_20250124", "name": "bash"}, False),
        ({"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}, False),
        ({"type": "computer_20251124", "name": "computer"}, False),
        ({"type": "computer_toolset_20260801"}, False),
        ({"type": "browser_toolset_20260801"}, False),
        ({"type": "memory_20250818", "name": "memory"}, False),
        ({"type": "web_search_20260209", "name": "web_search"}, True),
        ({"type": "web_fetch_20250910", "name": "web_fetch"}, True),
        ({"type": "code_execution_20250825", "name": "code_execution"}, True),
        ({"type": "tool_search_tool_regex_20251119", "name": "tool_search"}, True),
        ({"type": "mcp_toolset", "mcp_server_name": "m"}, True),
        ({"type": "openrouter:web_search"}, True),
        ({"type": "x_search"}, True),
        ({"googleSearch": {}}, True),
        ({"type": "", "name": "f", "input_schema": {}}, False),  # Go's programs send what is not set
        ({"type": "", "googleSearch": {}}, True),
    ],
    ids=str,
)
def test_a_tool_of_messages_runs_there_unless_it_is_known_as_the_clients(tool: dict[str, Any], there: bool) -> None:
    assert parsed("messages", tools=[{"name": "g", "input_schema": {}}, tool]).stateful is there


@pytest.mark.parametrize(
    ("model", "there"),
    [
        ("openai/gpt-5:online:nitro", True),
        ("openai/gpt-oss-20b:free:online", True),
        ("bot-20260224232147-dfcct", True),
        ("bot-x", False),
        ("openai/gpt-5:online", True),
        ("openai/gpt-5", False),
        ("openai/gpt-oss-120b:free", False),
        ("groq/compound", True),
        ("openrouter/fusion", True),
        ("groq/compound-mini", True),
        ("compound-beta", True),
        ("llama-3.3-70b:enable_web_search=on&enable_web_citations=true", True),
        ("llama-3.3-70b:enable_web_search=off", False),
        ("sonar-deep-research", True),
        ("openai/o3-deep-research", True),
        ("sonar-pro", False),  # its search is a part of each answer's price
        ("gpt-4o-search-preview", False),
        ("openai/gpt-5.2:online/exa-deep", True),
        ("brave-research", True),
        ("jina-deepsearch-v1", True),
        ("gpt-4o-web-search", True),
        ("openai/gpt-5:onlinex", False),
        ("some/online-model", False),
    ],
)
def test_a_model_may_run_something_by_its_name(model: str, there: bool) -> None:
    assert runs_itself(model) is there


@pytest.mark.parametrize(
    ("body", "there"),
    [
        ({"plugins": [{"id": "web"}]}, True),
        ({"tools": [{"type": "web_search"}]}, True),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, True),
        ({"tools": [{"googleSearch": {}}]}, True),
        ({"tools": {"google_search": {}}}, True),
        ({"tools": [{"type": "mcp", "server_url": "x"}]}, True),
        ({"mcp_servers": [{"type": "url", "url": "x", "name": "x"}]}, True),
        ({"tools": [{"type": "connector", "connector_id": "c"}]}, True),
        ({"tools": [{"type": "document_library", "library_ids": []}]}, True),
        ({"tools": [{"type": "web_extractor"}]}, True),
        ({"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]}, True),
        ({"tools": [{"type": "shell", "environment": {"type": "local"}}]}, False),
        ({"tools": [{"type": "web_search", "web_search": {"enable": False}}]}, False),
        ({"toolConfig": {"tools": [{"systemTool": {"name": "nova_grounding"}}]}}, True),
        ({"tools": [{"type": "custom", "name": "f"}, {"type": "memory_20250818", "name": "memory"}]}, False),
        ({"tools": [{"type": "text_editor_20250728", "name": "e"}, {"type": "computer_20250124"}]}, False),
        ({"tools": [TOOL, {"type": "bash_20250124", "name": "bash"}, {"name": "f", "input_schema": {}}]}, False),
        ({"tools": [{"functionDeclarations": []}]}, False),
        ({"tools": [{"type": "", "name": "f", "input_schema": {}}]}, False),
        ({"tools": [{"type": "", "googleSearch": {}}]}, True),
        ({"service_tier": "flex", "provider": {"only": ["x"]}}, False),
    ],
    ids=str,
)
def test_what_an_operator_adds_is_read_in_the_words_of_any_api(body: dict[str, Any], there: bool) -> None:
    assert is_added(raw(body)) is there


def test_only_searches_count_as_such() -> None:
    assert lets_search(raw({"plugins": [{"id": "web"}]}))
    assert not lets_search(raw({"enable_code_interpreter": True}))
    assert runs_there(raw({"enable_code_interpreter": True}))
    assert not lets_search(raw({"search_parameters": {"mode": "off"}}))
    assert not lets_search(raw({"know_ids": ["k"]}))


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search"},
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "openrouter:web_search"},
        {"type": "builtin_function", "function": {"name": "$web_search"}},
        {"google_search": {}},
        {"systemTool": {"name": "nova_grounding"}},
    ],
    ids=str,
)
def test_a_search_is_known_among_tools(tool: dict[str, Any]) -> None:
    assert lets_search(raw({"tools": [TOOL, tool]}))
    assert not lets_search(raw({"tools": [TOOL]}))
    assert searches_by_field(raw({"extra_body": {"tools": [TOOL, tool]}}))
    assert lets_search(raw({"extra_body": {"tools": [TOOL, tool]}}))
    assert not lets_search(raw({"extra_body": {"tools": [TOOL]}}))


def test_what_nobody_can_read_asks_for_nothing() -> None:
    assert not runs_there({"extra_body": msgspec.Raw(b"[" * 2_000_000), "plugins": msgspec.Raw(b"\xff")})


SEARCH, OWN = {"type": "web_search"}, {"type": "function", "name": "f", "parameters": {"tools": {"type": "mcp"}}}


def namespace(*tools: Any) -> dict[str, Any]:
    return {"type": "namespace", "name": "n", "description": "d", "tools": [*tools]}


WITHIN: list[tuple[dict[str, Any], bool]] = [
    ({"tools": [namespace(OWN, SEARCH)]}, True),
    ({"tools": [OWN, namespace(namespace(OWN), namespace({"type": "mcp", "server_label": "m"}))]}, True),
    ({"tools": [namespace({"type": "shell", "environment": {"type": "container_auto"}})]}, True),
    ({"tools": [namespace({"type": "shell", "environment": {"type": "local"}}, OWN)]}, False),
    ({"tools": [namespace(OWN, {"type": "custom", "name": "g"}), namespace()]}, False),
    ({"input": [{"type": "additional_tools", "role": "developer", "tools": [OWN, SEARCH]}]}, True),
    ({"input": [{"type": "additional_tools", "role": "developer", "tools": [namespace(OWN, SEARCH)]}]}, True),
    ({"input": [{"type": "additional_tools", "role": "developer", "tools": [namespace(OWN)]}]}, False),
    ({"input": [{"type": "tool_search_output", "call_id": "c", "tools": [namespace(SEARCH)]}]}, True),
    ({"input": [{"type": "tool_search_output", "call_id": "c", "tools": [SEARCH]}]}, True),
    ({"input": [{"type": "tool_search_output", "call_id": "c", "tools": [OWN, namespace(OWN)]}]}, False),
    ({"input": [{"type": "tool_search_output", "call_id": "c", "tools": "odd"}]}, False),
    ({"tools": [{**namespace(), "tools": None}, {**namespace(), "tools": "odd"}]}, False),
]


@pytest.mark.parametrize(("said", "there"), WITHIN, ids=str)
def test_what_runs_at_a_provider_is_found_within_other_tools(said: dict[str, Any], there: bool) -> None:
    assert parsed("responses", **said).stateful is there


def test_tools_as_deep_as_json_may_be_are_looked_through() -> None:
    said = "[" + '{"type":"namespace","tools":[' * 400 + '{"type":"web_search"}' + "]}" * 400 + "]"
    fields = {**raw({"model": "m", **PROMPT["responses"]}), "tools": msgspec.Raw(said.encode())}
    assert read_response(Contents(fields, len(said)), None, store=False).stateful
