"""JSON schemas: of the structs that handlers read and return, by the names that they have in the document."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gateway.api.overrides import RaceOverride
from gateway.api.preferences import Provider
from gateway.keys.stored import ShownClient
from gateway.settings import ClientSettings

_REF = "#/components/schemas/{name}"


class Made(dict[str, Any]):
    """A schema, or another part of the document, as JSON."""


OBJECT = Made(type="object")  # with fields that are not the gateway's
TEXT = Made(type="string")


def of_type(kind: Any, about: str | None = None) -> Made:
    """Return the schema of any type that is read or written; records are in it, not referred to."""
    whole = msgspec.json.schema(kind)
    within: dict[str, Any] = whole.pop("$defs", {})

    def resolved(node: Any) -> Any:
        if isinstance(node, dict):
            if "$ref" in node:
                return resolved(within[node["$ref"].rpartition("/")[2]])
            return {name: resolved(each) for name, each in node.items() if name != "title"}
        return [resolved(each) for each in node] if isinstance(node, list) else node

    return Made(resolved(whole), **({} if about is None else {"description": about}))


def ref(name: str) -> Made:
    """Return a reference to a schema of the document."""
    return Made({"$ref": _REF.format(name=name)})


_READ = (RaceOverride, Provider)
# Names for classes whose own names are unclear, or not unique.
_NAMES = {
    "Row": "LeaderboardRow",
    "Provider": "ProviderPreferences",
    "OpenAIModel": "Model",
    "Shown": "Target",
    "gateway.core.attempts.Role": "AttemptRole",
    "gateway.settings.sections.Role": "ClientRole",
}
_NAMES_OF_SETTINGS = {"Role": "ClientRole"}
_OF_FILE = ("key_sha256", "admin")  # of a client in the configuration only


class Schemas:
    """The schemas of the types that are ``sent``, and of the records that are read."""

    def __init__(self, sent: Iterable[Any]) -> None:
        kinds = [*dict.fromkeys(kind for kind in sent if not isinstance(kind, Made)), ShownClient]
        schemas, records = msgspec.json.schema_components(kinds, ref_template=_REF)
        for each in records.values():
            _demand_what_is_sent(each)
        self._by_kind = {kind: _tidy("", schema, _NAMES) for kind, schema in zip(kinds, schemas, strict=True)}
        read = msgspec.json.schema_components(_READ, ref_template=_REF)[1]
        client = ClientSettings.model_json_schema(ref_template=_REF.format(name="{model}"))
        del client["additionalProperties"]  # a client's description has more fields
        of_settings = {**client.pop("$defs"), "ClientSettings": _without(client, _OF_FILE)}
        self.components = {
            **_named({**records, **read}, _NAMES),
            **_named(of_settings, _NAMES_OF_SETTINGS),
            **_CLIENTS,
        }

    def of(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a type that is sent: of a record a reference. What is a schema is returned unchanged."""
        schema: dict[str, Any] = kind if isinstance(kind, Made) else self._by_kind[kind]
        return schema


# A client's description is its settings beside other fields, which no struct can say.
_CLIENTS: Mapping[str, Made] = {
    "Client": Made(
        description="A client: its settings as far as they are set, and its keys.",
        allOf=[ref("ClientSettings"), ref("ShownClient")],
    ),
    "ClientWithKey": Made(
        description="A client with its new key, which is never shown again.",
        allOf=[
            ref("Client"),
            Made(OBJECT, properties={"key": Made(TEXT, description="`hs-…`")}, required=["key"]),
        ],
    ),
}


def of(kind: type) -> Made:
    """Return a reference to a record's schema."""
    return ref(_name(kind.__name__, _NAMES))


def _demand_what_is_sent(record: dict[str, Any]) -> None:
    """Demand the fields that have defaults, too: they are always sent. Those that may be missing have none."""
    if "properties" in record:
        required = record.get("required", ())
        fields: dict[str, dict[str, Any]] = record["properties"]
        record["required"] = [name for name, each in fields.items() if name in required or "default" in each]
        for each in fields.values():
            each.pop("default", None)


def _without(one: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    properties = {name: each for name, each in one["properties"].items() if name not in names}
    required = [name for name in one.get("required", ()) if name not in names]
    return {**one, "properties": properties, "required": required}


def _named(schemas: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return tidied schemas by their names in the document."""
    return {_name(name, names): _tidy("", each, names) for name, each in schemas.items()}


def _tidy(name: str, node: Any, names: Mapping[str, str]) -> Any:
    """Return a schema without titles, which repeat the names, and with descriptions in Markdown.

    A field may have one of these names too: its value is a schema, not a string.
    """
    if isinstance(node, dict):
        return {
            key: _tidy(key, each, names) for key, each in node.items() if key != "title" or not isinstance(each, str)
        }
    if isinstance(node, list):
        return [_tidy("", each, names) for each in node]
    if name == "$ref":
        return _REF.format(name=_name(node.rpartition("/")[2], names))
    return " ".join(node.replace("``", "`").split()) if name == "description" else node


def _name(name: str, names: Mapping[str, str]) -> str:
    return names.get(name, name.lstrip("_"))
