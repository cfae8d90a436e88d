"""Schemas of the records that the code itself reads and writes: they cannot differ from what it does."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.admin.explain import Explained, HypotheticalCall
from gateway.admin.openapi.operation import (
    ADMIN,
    ADMIN_VISITOR,
    ANYBODY,
    JSON,
    TEXT,
    VIEWER,
    Access,
    Answer,
    Body,
    Operation,
    Parameter,
    Schema,
    Tag,
    array,
    count,
    flag,
    instant,
    nullable,
    number,
    record,
    ref,
    text,
)
from gateway.api.overrides import RaceOverride
from gateway.api.preferences import Provider
from gateway.core.errors import (
    BodyTimeout,
    BodyTooLarge,
    ClientNotFound,
    InvalidRequest,
    KeyConflict,
    KeysUnreachable,
    ModelNotFound,
    UnsupportedMediaType,
)
from gateway.keys.stored import State
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


# Health, metrics and the leaderboard.

STATUS_SCHEMAS: dict[str, Schema] = {
    "Readiness": record(
        {
            "status": text(one_of=("ok", "keys_not_loaded", "stopping")),
            "database": record(
                {
                    "connected": nullable(flag("Unknown until it was asked.")),
                    "answered_s_ago": nullable(number()),
                    "pending": count("Rows that wait to be stored."),
                    "oldest_pending_s": nullable(number()),
                }
            ),
            "spool": record({"problem": nullable(TEXT), "lost": count("Rows.")}),
            "redis": nullable(record({"connected": flag()})),
            "keys": nullable({"type": "object", "description": "Of the database; null without `keys: database`."}),
            "models": count(),
        }
    )
}
MODEL = Parameter(name="model", description="Only this model; by default all.")


_ABOUT = {
    "prompt_tokens": "The prompt's length.",
    "max_tokens": "The limit of the answer, if one is set.",
    "stream": "Whether the answer is streamed.",
    "tools": "Whether there are tools.",
    "json_schema": "Whether the answer must follow a schema.",
    "vision": "Whether there are pictures in the prompt.",
}
# Which call an explanation is of: its size and kind, and how it is raced.
HYPOTHETICAL_CALL = tuple(
    Parameter(
        name=field.name,
        schema=of_type(field.type),
        description=_ABOUT.get(field.name, f"As `{field.name}` in a request's `race`."),
    )
    for field in (*msgspec.structs.fields(HypotheticalCall), *msgspec.structs.fields(RaceOverride))
)
_READY: Schema = {JSON: ref("Readiness")}
_BOARDS = record({"models": array(of(Leaderboard))})
_EXPLAINED = record({"models": array(of(Explained))})


def status_operations() -> list[Operation]:
    """Return the status_operations."""
    return [
        Operation(
            method="GET",
            path="/health/live",
            id="isAlive",
            tag=Tag.STATUS,
            summary="Whether the process responds",
            access=ANYBODY,
            answers={200: Answer(description="It does.", content={JSON: record({"status": text(one_of=("ok",))})})},
        ),
        Operation(
            method="GET",
            path="/health/ready",
            id="isReady",
            tag=Tag.STATUS,
            summary="Whether new calls are accepted, and the state of the stores",
            description="The gateway stays ready when its database or Redis goes away.",
            access=ANYBODY,
            answers={
                200: Answer(description="They are.", content=_READY),
                503: Answer(description="It stops, or does not know the keys of the database yet.", content=_READY),
            },
        ),
        Operation(
            method="GET",
            path="/metrics",
            id="getMetrics",
            tag=Tag.STATUS,
            summary="Metrics in Prometheus' text format",
            access=VIEWER,
            answers={200: Answer(description="The metrics.", content={"text/plain": TEXT})},
        ),
        Operation(
            method="GET",
            path="/leaderboard",
            id="getLeaderboard",
            tag=Tag.STATUS,
            summary="How fast and how good each deployment is, or who would run next, and why",
            access=VIEWER,
            parameters=(
                MODEL,
                Parameter(
                    name="explain",
                    schema=of_type(bool),
                    description="`1`: the plans of next calls instead. The other parameters are for these.",
                ),
                *HYPOTHETICAL_CALL,
            ),
            answers={
                200: Answer(
                    description="Each model's deployments, best first; with `explain` its plan.",
                    content={JSON: {"anyOf": [_BOARDS, _EXPLAINED]}},
                )
            },
            errors=(InvalidRequest, ModelNotFound),
        ),
    ]


# Clients and their keys, for programs (/admin/keys) and for the page (/api/keys).

_KEY = record(
    {"state": text(one_of=tuple(State))},
    {
        "id": text(),
        "hint": text("Its last characters."),
        "created_at": instant(),
        "created_by": text(),
        "last_used_at": nullable(instant()),
        "retires_at": nullable(instant("When a rotated key ends.")),
        "revoked_at": nullable(instant()),
    },
    "A key; of those in the file only the state is known.",
)
_KEYS_ABOUT = {
    "name": text(),
    "source": text("Where the client is described.", one_of=("file", "database")),
    "expires": nullable(instant()),
    "keys": array(ref("ClientKey")),
}
KEY_SCHEMAS: dict[str, Schema] = {
    "ClientKey": _KEY,
    "Client": {
        "description": "A client: its settings as far as they are set, and its keys.",
        "allOf": [
            ref("ClientSettings"),
            record(_KEYS_ABOUT, {"shadowed": flag("The file has a client of this name, and that one counts.")}),
        ],
    },
    "ClientWithKey": {
        "description": "A client with its new key, which is never shown again.",
        "allOf": [ref("Client"), record({"key": text("`hs-…`")})],
    },
}
_NAME = Parameter(name="name", place="path", description="The client's name.")
_BODY = (InvalidRequest, UnsupportedMediaType, BodyTimeout, BodyTooLarge, KeysUnreachable)
_NEW: Schema = {
    "allOf": [ref("ClientSettings"), record({"name": text("Letters, digits, dots, dashes, underscores.")})],
    "unevaluatedProperties": False,
}
_PATCH: Schema = {
    "type": "object",
    "description": "A merge patch (RFC 7396) of `ClientSettings`: null means the default.",
}
_REVOKED = record({"name": text(), "revoked": array(record({"id": text(), "hint": text()}))})
_ROTATION = record({}, {"grace_s": number("Seconds for which the older keys stay valid; 0 by default.")})


def key_operations(root: str, tag: Tag) -> list[Operation]:
    """Return the operations below ``root``."""
    is_admin = root.startswith("/admin")
    reads, changes = (VIEWER, ADMIN) if is_admin else (ADMIN_VISITOR, ADMIN_VISITOR)
    suffix = "" if is_admin else "OnPage"

    def keys(
        method: str,
        path: str,
        name: str,
        *,
        summary: str,
        access: Access,
        answer: Answer,
        description: str = "",
        status: int = 200,
        body: Body | None = None,
        parameters: tuple[Parameter, ...] = (),
        errors: tuple[type, ...] = (),
    ) -> Operation:
        return Operation(
            method=method,
            path=f"{root}{path}",
            id=f"{name}{suffix}",
            tag=tag,
            summary=summary,
            description=description,
            access=access,
            parameters=((_NAME,) if "{name}" in path else ()) + parameters,
            body=body,
            answers={status: answer},
            errors=(*errors, *_BODY),
        )

    client = Answer(description="The client.", content={JSON: ref("Client")})
    with_key = Answer(description="The client, with its new key.", content={JSON: ref("ClientWithKey")})
    listed = record({"object": text(one_of=("list",)), "data": array(ref("Client"))})
    return [
        keys(
            "GET",
            "",
            "listKeys",
            summary="Every client with its keys",
            access=reads,
            answer=Answer(description="The clients of the file, then those of the database.", content={JSON: listed}),
            parameters=(Parameter(name="all", schema=flag(), description="`1`: revoked keys too."),),
        ),
        keys(
            "POST",
            "",
            "createKey",
            summary="Make a client with a key",
            access=changes,
            answer=with_key,
            status=201,
            body=Body(content={JSON: _NEW}, example={"name": "search", "rpm": 60}),
            errors=(KeyConflict,),
        ),
        keys(
            "GET",
            "/{name}",
            "getKey",
            summary="One client",
            access=reads,
            answer=client,
            errors=(ClientNotFound,),
        ),
        keys(
            "PATCH",
            "/{name}",
            "changeKey",
            summary="Change a client's settings",
            access=changes,
            answer=client,
            body=Body(content={JSON: _PATCH}, example={"rpm": 120, "expires": None}),
            errors=(ClientNotFound, KeyConflict),
        ),
        keys(
            "DELETE",
            "/{name}",
            "revokeKey",
            summary="End a client's keys, and the calls that run with them",
            access=changes,
            answer=Answer(description="Which keys were ended.", content={JSON: _REVOKED}),
            parameters=(Parameter(name="key", description="Only the key with this id or hint."),),
            errors=(ClientNotFound, KeyConflict),
        ),
        keys(
            "POST",
            "/{name}/rotate",
            "rotateKey",
            summary="Give a client a new key",
            access=changes,
            answer=with_key,
            body=Body(content={JSON: _ROTATION}, example={"grace_s": 3600}, required=False),
            errors=(ClientNotFound, KeyConflict),
        ),
    ]
