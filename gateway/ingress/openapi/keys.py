"""Clients and their keys, for programs (/admin/keys) and for the page (/api/keys)."""

from gateway.errors import BodyTimeout, BodyTooLarge, InvalidRequest, UnsupportedMediaType
from gateway.ingress.openapi.operation import (
    ADMIN,
    ADMIN_VISITOR,
    JSON,
    VIEWER,
    Access,
    Answer,
    Body,
    Operation,
    Parameter,
    Schema,
    Tag,
    array,
    flag,
    instant,
    nullable,
    number,
    record,
    ref,
    text,
)
from gateway.key_errors import ClientNotFound, KeyConflict, KeysUnreachable
from gateway.keys.stored_key import State

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
_ABOUT = {
    "name": text(),
    "source": text("Where the client is described.", one_of=("file", "database")),
    "expires": nullable(instant()),
    "keys": array(ref("ClientKey")),
}
SCHEMAS: dict[str, Schema] = {
    "ClientKey": _KEY,
    "Client": {
        "description": "A client: its settings as far as they are set, and its keys.",
        "allOf": [
            ref("ClientSettings"),
            record(_ABOUT, {"shadowed": flag("The file has a client of this name, and that one counts.")}),
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


def operations(root: str, tag: Tag) -> list[Operation]:
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
