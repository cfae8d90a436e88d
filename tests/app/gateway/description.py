"""/openapi.json of a running gateway, against which its real answers are held."""

import re
from collections.abc import Mapping
from fnmatch import fnmatch
from typing import Any

import aiohttp
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from tests.app.gateway.running_gateway import RunningGateway


class Description:
    """What the gateway says of itself. An answer with a field, a status, a code or a header of ours that it does not
    name is a failure: for that, objects are closed here that are open to programs.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        components = document["components"]
        self._closed = {"schemas": {name: _closed(each, components) for name, each in components["schemas"].items()}}

    @classmethod
    async def of(cls, running: RunningGateway) -> "Description":
        async with running.get("/openapi.json") as response:
            assert response.content_type == "application/json"
            return cls(await response.json())

    @property
    def operations(self) -> set[tuple[str, str]]:
        return {(method.upper(), path) for path, methods in self.document["paths"].items() for method in methods}

    def path_of(self, method: str, path: str) -> str:
        """Return the described path that ``path`` is one of."""
        path, paths = path.partition("?")[0], self.document["paths"]
        fitting = [each for each in paths if method.lower() in paths[each] and re.fullmatch(_pattern(each), path)]
        return str(max(fitting, key=len))

    async def check(self, template: str, response: aiohttp.ClientResponse, *, foreign: bool = False) -> Any:
        """Hold an answer of ``template`` against its description and return its body.

        With ``foreign`` the body is a provider's, which may have more fields.
        """
        operation = self.document["paths"][template][response.method.lower()]
        said = operation["responses"].get(str(response.status), operation["responses"]["default"])
        if "$ref" in said:
            said = self.document["components"]["responses"][said["$ref"].rpartition("/")[2]]
        body = await response.read()
        where = f"{response.method} {template} {response.status}: {body[:500]!r}"
        ours = {name.lower() for name in response.headers if name.lower().startswith("x-holeshot-")}
        if response.status < 400:
            unsaid = ours - set(said.get("headers", {}))
            assert not unsaid, f"{unsaid} of {where}"
        if not body:
            assert "content" not in said or response.status == 304, where
            return None
        schema = next((each["schema"] for each in _matching(said, response.content_type)), None)
        assert schema is not None, f"{where}: {response.content_type} is not described"
        if response.content_type != "application/json":
            return body
        value = await response.json()
        components = self.document["components"]
        if not foreign:
            schema, components = _closed(schema, components), self._closed
        problem = best_match(Draft202012Validator({**schema, "components": components}).iter_errors(value))
        assert problem is None, f"{problem.json_path}: {problem.message[:500]}\n{where}"
        if response.status >= 400:
            code = value.get("error", {}).get("code")  # AWS' errors have none
            # Google's is the status, and of interactions a word of its own.
            is_google = code == response.status or "/interactions" in template
            assert code is None or is_google or code in said["x-error-codes"], where
        return value


def _matching(said: Any, content_type: str) -> list[Any]:
    return [each for media, each in said.get("content", {}).items() if fnmatch(content_type, media)]


def _closed(schema: Any, components: Mapping[str, Any]) -> Any:
    """Return the schema without room for fields that it does not name."""
    if isinstance(schema, list):
        return [_closed(each, components) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(each, components) for name, each in schema.items()}
    if "allOf" in schema:
        closed["allOf"] = [_part(each, components) for each in schema["allOf"]]
    is_object = schema.get("type") == "object" and "properties" in schema and "additionalProperties" not in schema
    if is_object or "allOf" in schema:
        closed["unevaluatedProperties"] = False
    return closed


def _part(schema: Any, components: Mapping[str, Any]) -> Any:
    """Return a part of an object: the other parts know of more fields."""
    if "$ref" in schema:
        return _part(components["schemas"][schema["$ref"].rpartition("/")[2]], components)
    closed = _closed(schema, components)
    closed.pop("unevaluatedProperties", None)
    return closed


def _pattern(template: str) -> str:
    """Return the regular expression of the paths that a described one stands for."""
    return re.sub(r"\\\{\w+\\\}", ".+", re.escape(template))
