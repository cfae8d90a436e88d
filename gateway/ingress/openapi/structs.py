"""Schemas of the records that the code itself reads and writes: they cannot differ from what it does."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.ingress.explaining import Explained
from gateway.ingress.openapi.operation import Schema
from gateway.ingress.preferences.openrouter import Provider
from gateway.ingress.preferences.override import RaceOverride
from gateway.settings.model import ClientSettings
from gateway.steering.leaderboard import Leaderboard

_REF = "#/components/schemas/{name}"
_SENT = (Leaderboard, Explained)  # every field is always there
_READ = (RaceOverride, Provider)
# Names that would say too little, or that two records have.
_NAMES = {"Row": "LeaderboardRow", "Provider": "ProviderPreferences", "Role": "AttemptRole"}
_NAMES_OF_SETTINGS = {"Role": "ClientRole"}
_OF_FILE = ("key_sha256", "admin")  # of a client in the configuration only


def schemas() -> dict[str, Any]:
    """Return the schemas of records by name, as ``of`` refers to them."""
    sent = msgspec.json.schema_components(_SENT, ref_template=_REF)[1]
    for each in sent.values():
        if "properties" in each:
            each["required"] = list(each["properties"])
    read = msgspec.json.schema_components(_READ, ref_template=_REF)[1]
    client = ClientSettings.model_json_schema(ref_template=_REF.format(name="{model}"))
    del client["additionalProperties"]  # others are beside them, in what describes a client
    found = _named({**sent, **read}, _NAMES)
    found |= _named({**client.pop("$defs"), "ClientSettings": _without(client, _OF_FILE)}, _NAMES_OF_SETTINGS)
    return dict(sorted(found.items()))


def of(record: type) -> Schema:
    """Return a reference to a record's schema."""
    return {"$ref": _REF.format(name=_name(record.__name__, _NAMES))}


def of_type(kind: Any) -> Schema:
    """Return the schema of any type; records are in it, not referred to."""
    whole = msgspec.json.schema(kind)
    within: dict[str, Any] = whole.pop("$defs", {})

    def resolved(node: Any) -> Any:
        if isinstance(node, dict):
            if "$ref" in node:
                return resolved(within[node["$ref"].rpartition("/")[2]])
            return {name: resolved(each) for name, each in node.items() if name != "title"}
        return [resolved(each) for each in node] if isinstance(node, list) else node

    schema: Schema = resolved(whole)
    return schema


def _without(schema: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    properties = {name: each for name, each in schema["properties"].items() if name not in names}
    required = [name for name in schema.get("required", ()) if name not in names]
    return {**schema, "properties": properties, "required": required}


def _named(schemas: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return schemas, tidied, by the names that they shall have."""

    def renamed(node: Any) -> Any:
        if isinstance(node, dict):
            return {name: _target(each, names) if name == "$ref" else renamed(each) for name, each in node.items()}
        return [renamed(each) for each in node] if isinstance(node, list) else node

    return {_name(name, names): renamed(_tidy(each)) for name, each in schemas.items()}


def _target(reference: str, names: Mapping[str, str]) -> str:
    return _REF.format(name=_name(reference.rpartition("/")[2], names))


def _name(name: str, names: Mapping[str, str]) -> str:
    return names.get(name, name.lstrip("_"))


def _tidy(node: Any) -> Any:
    """Return the schema without titles, which repeat the names, and with descriptions in Markdown.

    A field may have one of these names too: its value is a schema, not a string.
    """
    if isinstance(node, dict):
        kept = {name: each for name, each in node.items() if not (name == "title" and isinstance(each, str))}
        return {name: _as_markdown(each) if name == "description" else _tidy(each) for name, each in kept.items()}
    return [_tidy(each) for each in node] if isinstance(node, list) else node


def _as_markdown(said: Any) -> Any:
    return " ".join(said.replace("``", "`").split()) if isinstance(said, str) else _tidy(said)
