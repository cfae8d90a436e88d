"""/openapi.json: it has every route and no other, and is valid OpenAPI 3.1."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from gateway.admin.openapi.document import OPERATIONS, codes, document
from gateway.api import ENDPOINTS
from gateway.app.routes import ROUTES
from gateway.core.errors import ApiError, ClientDisconnected
from gateway.core.race_failures import RaceFailed

META = Path(__file__).with_name("openapi-3.1.schema.json")
_LITERAL = re.compile(r"\{\w+:([\w/-]+)\}")  # {rest:input_items}
_NAMED = re.compile(r"\{(\w+):[^{}]+\}")  # {id:.+}


@pytest.fixture(scope="module")
def described() -> Any:
    """The document, as a program reads it."""
    return json.loads(msgspec.json.encode(document()))


def operations(described: Any) -> Iterator[tuple[str, str, Any]]:
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in ``value``."""
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from nodes(each)
    elif isinstance(value, list):
        for each in value:
            yield from nodes(each)


def as_described(path: str) -> str:
    """Return aiohttp's path as OpenAPI writes it."""
    return _NAMED.sub(r"{\1}", _LITERAL.sub(r"\1", path))


def test_every_route_is_described_and_nothing_else(described: Any) -> None:
    served = {(route.method, as_described(route.path)) for route in ROUTES}
    said = {(method, path) for method, path, _ in operations(described)}
    missing, stale = sorted(served - said), sorted(said - served)
    assert not missing, (
        f"{missing}: add an Operation to gateway/admin/openapi/ (those of /api are in page_api.py): its path, who may"
        " ask, its parameters, the schema of its answer, and its errors; then a request of it to"
        " tests/app/gateway/watching/test_openapi.py, which holds the real answer against the schema"
    )
    assert not stale, f"{stale}: there is no such route; take its Operation out of gateway/admin/openapi/"


def test_it_is_valid_openapi(described: Any) -> None:
    problems = Draft202012Validator(json.loads(META.read_text(encoding="utf-8"))).iter_errors(described)
    assert [f"{problem.json_path}: {problem.message[:200]}" for problem in problems] == []


def test_every_schema_is_valid(described: Any) -> None:
    found = [node["schema"] for node in nodes(described) if isinstance(node.get("schema"), dict)]
    assert found
    for schema in (*found, *described["components"]["schemas"].values()):
        Draft202012Validator.check_schema(schema)


def test_what_is_referred_to_is_there(described: Any) -> None:
    refs = {node["$ref"] for node in nodes(described) if isinstance(node.get("$ref"), str)}
    assert len(refs) > 20
    for ref in refs:
        here = described
        for name in ref.removeprefix("#/").split("/"):
            assert name in here, ref
            here = here[name]


def test_every_schema_is_used(described: Any) -> None:
    refs = {node["$ref"] for node in nodes(described) if isinstance(node.get("$ref"), str)}
    unused = [name for name in described["components"]["schemas"] if f"#/components/schemas/{name}" not in refs]
    assert unused == []


def test_each_operation_has_a_name_of_its_own() -> None:
    names = [each.id for each in OPERATIONS]
    assert sorted(set(names)) == sorted(names)
    assert all(name.isidentifier() for name in names)


def test_the_parameters_of_a_path_are_described(described: Any) -> None:
    for method, path, operation in operations(described):
        said = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}
        assert said == set(re.findall(r"\{(\w+)\}", path)), (method, path)


def subclasses(kind: type[ApiError]) -> set[type[ApiError]]:
    below = set(kind.__subclasses__())
    return below.union(*map(subclasses, below))


def test_every_error_that_can_be_sent_is_described(described: Any) -> None:
    never_sent = subclasses(ClientDisconnected) | {ClientDisconnected}
    said = {code for node in nodes(described) for code in node.get("x-error-codes", ())}
    for error in subclasses(ApiError) - never_sent:
        if error.__module__.startswith("gateway.") and error is not RaceFailed:
            assert set(codes(error)) <= said, f"{error.__name__}: name it in the errors of the operations that raise it"


def test_the_fields_that_are_read_of_a_body_are_those_of_its_decoders(described: Any) -> None:
    for surface in ENDPOINTS.values():
        body = described["paths"][as_described(surface.paths[0])]["post"]["requestBody"]["content"]["application/json"][
            "schema"
        ]
        assert surface.fields
        assert set(surface.fields) <= set(body["properties"])
