"""What providers store is found in any list of tools of any API, and nowhere among what is the client's own."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gateway.api.provider_state import names_of
from gateway.api.relayed_requests import form_fields
from gateway.core.errors import InvalidRequest
from providers import finished, read_form
from providers.dialects import StoredKind
from tests.unit.api.agent_requests import request
from tests.unit.api.inside.test_provider_state import MOST_VALUES, named

APIS = ("chat", "responses", "messages", "gemini", "images/edits", "audio/speech", "embeddings", "decisions", "rerank")
TOOLS: list[tuple[dict[str, Any], str, StoredKind]] = [
    ({"type": "file_search", "vector_store_ids": ["own", "vs_other"]}, "vector_store_ids[0]", StoredKind.STORE),
    ({"type": "code_interpreter", "container": "c-17"}, "container", StoredKind.CONTAINER),
    ({"type": "code_interpreter", "container": {"fileIds": ["f"]}}, "container.fileIds[0]", StoredKind.FILE),
    ({"type": "shell", "environment": {"container_id": "x"}}, "environment.container_id", StoredKind.CONTAINER),
    ({"type": "mcp", "server_url": "file:///etc"}, "server_url", StoredKind.SERVER),
    ({"type": "mcp", "url": "http://10.0.0.1/"}, "url", StoredKind.SERVER),
    ({"type": "mcp", "connectorId": "dropbox"}, "connectorId", StoredKind.CONNECTOR),
    ({"type": "later", "use": {"vector_store_id": " vs_1"}}, "use.vector_store_id", StoredKind.STORE),
]
LISTS: dict[str, tuple[Callable[[Any], dict[str, Any]], str]] = {
    "beside": (lambda tool: {"tools": [{"type": "function", "name": "f"}, tool]}, "tools[1]"),
    "namespaces": (lambda tool: {"tools": [{"tools": [{"tools": [tool]}]}]}, "tools[0].tools[0].tools[0]"),
    "item": (lambda tool: {"input": ["Hi", {"type": "later", "tools": [tool]}]}, "input[1].tools[0]"),
    "message": (lambda tool: {"messages": [{"role": "user", "tools": [tool]}]}, "messages[0].tools[0]"),
    "input of a message": (
        lambda tool: {"messages": [{"input": [{"content": [{"tools": [tool]}]}]}]},
        "messages[0].input[0].content[0].tools[0]",
    ),
    "choice": (lambda tool: {"tool_choice": {"type": "allowed_tools", "tools": [tool]}}, "tool_choice.tools[0]"),
    "turn": (lambda tool: {"contents": [{"parts": [{"tools": [tool]}]}]}, "contents[0].parts[0].tools[0]"),
    "program's body": (lambda tool: {"extra_body": {"later": {"tools": [tool]}}}, "extra_body.later.tools[0]"),
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("where", LISTS)
@pytest.mark.parametrize(("tool", "field", "kind"), TOOLS, ids=str)
def test_no_list_of_tools_names_it_unseen(
    api: str, where: str, tool: dict[str, Any], field: str, kind: StoredKind
) -> None:
    within, at = LISTS[where]
    found = named(api, **within(tool))
    assert (found[0].field, found[0].kind) == (f"{at}.{field}", kind)


@pytest.mark.parametrize("name", ["metadata", "attributes", "text_schema"])
def test_labels_and_schemas_name_nothing(name: str) -> None:
    for tool, _, _ in TOOLS:
        assert named("responses", **{name: {"tools": [tool]}}) == []
        assert named("responses", tools=[{"type": "function", "parameters": {"tools": [tool], "default": tool}}]) == []


@pytest.mark.parametrize(
    ("api", "fields", "field"),
    [
        (
            "responses",
            {"prompt": {"variables": {"input": {"image_url": "gs://b"}}}},
            "prompt.variables.input.image_url",
        ),
        ("chat", {"messages": [{"input": [{"type": "input_file", "file_id": "f"}]}]}, "messages[0].input[0].file_id"),
        ("decisions", {"input": [{"content": [{"file_id": "file-1"}]}]}, "input[0].content[0].file_id"),
        ("images/edits", {"images": [{"image_url": "gs://b/c.png"}]}, "images[0].image_url"),
        (
            "gemini",
            {"generateContentRequest": {"tools": [{"container": "x"}]}},
            "generateContentRequest.tools[0].container",
        ),
    ],
)
def test_other_places_are_known(api: str, fields: dict[str, Any], field: str) -> None:
    assert [each.field for each in named(api, **fields)] == [field]


def test_a_thousand_requests_of_agents_name_nothing() -> None:
    for seed in range(1000):
        api, fields = request(seed)
        assert named(api, **fields) == [], seed


def test_a_long_key_above_many_values_is_not_copied_for_each() -> None:
    deep: Any = {"file_id": "file-1"}
    found = named("responses", input=[{"k" * 100_000: {str(n): deep for n in range(2_000)}}])
    assert len(found) == 2_000
    assert max(len(each.field) for each in found) < 1_100


def test_values_are_looked_at_in_slices() -> None:
    one = msgspec.Raw(msgspec.json.encode({"tools": [{"a": n} for n in range(9_000)], "file_id": "x"}))
    assert sum(1 for _ in names_of("later", {"later": one}, MOST_VALUES)) >= 9


def form(**parts: str) -> dict[str, Any]:
    written = "".join(
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in parts.items()
    )
    read = read_form("multipart/form-data; boundary=b", (written + "--b--\r\n").encode())
    return finished(form_fields(read))


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        ("image[0][file_id]", "f", "image.file_id"),
        ("images[][file_id]", "f", "images.file_id"),
        ("mask.file_id", "f", "mask.file_id"),
        ("file_id", "file-1", "file_id"),
        ("mask", '{"file_id": "f"}', "mask.file_id"),
        ("later", ' [{"vectorStoreIds": ["vs_1"]}]', "later[0].vectorStoreIds[0]"),
        ("tools[0][server_url]", "http://10.0.0.1/", "tools.server_url"),
        ("extra[tools]", '[{"type": "mcp", "server_url": "http://10.0.0.1/"}]', "extra.tools[0].server_url"),
    ],
)
def test_a_form_names_what_json_does(name: str, value: str, field: str) -> None:
    found = finished(names_of("images/edits", form(prompt="cat", **{name: value}), MOST_VALUES))
    assert [each.field for each in found] == [field]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prompt", '{"file_id": "file-1"}'),
        ("response_format", "json"),
        ("chunking_strategy", '{"type": "server_vad"}'),
        ("metadata", '{"file_id": "file-1"}'),
        ("metadata[file_id]", "file-1"),
        ("later", "{no JSON"),
        ('image"; filename="a.json', '{"file_id": "file-1"}'),
    ],
)
def test_texts_labels_and_files_of_a_form_name_nothing(name: str, value: str) -> None:
    assert finished(names_of("images/edits", form(**{name: value}), MOST_VALUES)) == []


def test_json_in_a_form_has_a_limit() -> None:
    with pytest.raises(InvalidRequest, match="longer than 65536 bytes"):
        form(later="{" + " " * 70_000)
