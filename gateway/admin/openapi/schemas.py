"""JSON schemas: of the types that the code reads and sends, and of values described in a short notation."""

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import msgspec

from gateway.admin.leaderboard import Explained
from gateway.api.overrides import RaceOverride
from gateway.api.preferences import Provider
from gateway.settings import ClientSettings
from gateway.steering import Leaderboard

_REF = "#/components/schemas/{name}"


class Made(dict[str, Any]):
    """A schema, or another part of the document, as JSON."""


OBJECT = Made(type="object")  # with fields that are not the gateway's
TEXT = Made(type="string")
_PLAIN: Mapping[Any, Made] = {
    str: TEXT,
    int: Made(type="integer"),
    float: Made(type="number"),
    bool: Made(type="boolean"),
    datetime: Made(type="string", format="date-time"),
}


def schema(of: Any) -> Made:
    """Return the schema of a type, or of a value in a notation that resembles JSON.

    ``{"id name": str, "tags?": [str]}`` is an object with two texts and perhaps an array of texts; later versions may
    have more fields. ``(int, "Seconds.")`` has a description. ``"Model"`` is the schema of that name. A schema
    is returned unchanged.
    """
    match of:
        case Made():
            found = of
        case str(name):
            found = ref(name)
        case (kind, about) if NoneType in get_args(kind):
            found = nullable((_value(kind), about))
        case (kind, about):
            found = Made(schema(kind), description=about)
        case [items]:
            found = Made(type="array", items=schema(items))
        case Mapping():
            found = _object(of)
        case _:
            found = _of_plain(of)
    return found


def _of_plain(kind: Any) -> Made:
    origin, args = get_origin(kind), get_args(kind)
    if NoneType in args:
        return nullable(_value(kind))
    if origin is Literal:
        return Made(TEXT, enum=list(args))
    if origin is dict:
        return Made(OBJECT, additionalProperties=True if args[1] is Any else schema(args[1]))
    return Made(TEXT, enum=list(kind)) if issubclass(kind, Enum) else _PLAIN[kind]


def nullable(of: Any) -> Made:
    """Return a schema that also allows null."""
    one = schema(of)
    if isinstance(kind := one.get("type"), str) and "enum" not in one:
        return Made(one, type=[kind, "null"])
    return Made(anyOf=[one, {"type": "null"}])


def either(*of: Any) -> Made:
    """Return the schema of a value that matches one of these."""
    return Made(anyOf=[schema(each) for each in of])


def ref(name: str) -> Made:
    """Return a reference to a schema of the document."""
    return Made({"$ref": _REF.format(name=name)})


def _value(kind: Any) -> Any:
    """Return the type of ``kind | None``."""
    [value] = [each for each in get_args(kind) if each is not NoneType]
    return value


def _object(named: Mapping[str, Any]) -> Made:
    each = [(name, kind) for names, kind in named.items() for name in names.split()]
    return Made(
        OBJECT,
        properties={name.removesuffix("?"): schema(kind) for name, kind in each},
        required=[name for name, _ in each if not name.endswith("?")],
    )


# The schemas of records that the code itself reads and writes, so they cannot differ from it.

_SENT = (Leaderboard, Explained)  # every field is always sent
_READ = (RaceOverride, Provider)
# Names for classes whose own names are unclear, or not unique.
_NAMES = {"Row": "LeaderboardRow", "Provider": "ProviderPreferences", "Role": "AttemptRole"}
_NAMES_OF_SETTINGS = {"Role": "ClientRole"}
_OF_FILE = ("key_sha256", "admin", "provider_keys")  # of a client in the configuration only


def of_records() -> dict[str, Any]:
    """Return the schemas of records by name, as ``of`` refers to them."""
    sent = msgspec.json.schema_components(_SENT, ref_template=_REF)[1]
    for each in sent.values():
        if "properties" in each:
            each["required"] = list(each["properties"])
    read = msgspec.json.schema_components(_READ, ref_template=_REF)[1]
    client = ClientSettings.model_json_schema(ref_template=_REF.format(name="{model}"))
    del client["additionalProperties"]  # a client's description has more fields
    found = _named({**sent, **read}, _NAMES)
    return found | _named({**client.pop("$defs"), "ClientSettings": _without(client, _OF_FILE)}, _NAMES_OF_SETTINGS)


def of(kind: type) -> Made:
    """Return a reference to a record's schema."""
    return ref(_name(kind.__name__, _NAMES))


def of_type(kind: Any) -> Made:
    """Return the schema of any type that is read or written; records are in it, not referred to."""
    whole = msgspec.json.schema(kind)
    within: dict[str, Any] = whole.pop("$defs", {})

    def resolved(node: Any) -> Any:
        if isinstance(node, dict):
            if "$ref" in node:
                return resolved(within[node["$ref"].rpartition("/")[2]])
            return {name: resolved(each) for name, each in node.items() if name != "title"}
        return [resolved(each) for each in node] if isinstance(node, list) else node

    return Made(resolved(whole))


def _without(one: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    properties = {name: each for name, each in one["properties"].items() if name not in names}
    required = [name for name in one.get("required", ()) if name not in names]
    return {**one, "properties": properties, "required": required}


def _named(schemas: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return tidied schemas by their names in the document.

    They are without titles, which repeat the names, and with descriptions in Markdown. A field may have one of these
    names too: its value is a schema, not a string.
    """

    def tidy(name: str, node: Any) -> Any:
        if isinstance(node, dict):
            return {key: tidy(key, each) for key, each in node.items() if key != "title" or not isinstance(each, str)}
        if isinstance(node, list):
            return [tidy("", each) for each in node]
        if name == "$ref":
            return _REF.format(name=_name(node.rpartition("/")[2], names))
        return " ".join(node.replace("``", "`").split()) if name == "description" else node

    return {_name(name, names): tidy("", each) for name, each in schemas.items()}


def _name(name: str, names: Mapping[str, str]) -> str:
    return names.get(name, name.lstrip("_"))
