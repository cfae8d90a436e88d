"""Health, metrics and the leaderboard."""

import msgspec

from gateway.errors import InvalidRequest, ModelNotFound
from gateway.ingress.explaining import Explained, HypotheticalCall
from gateway.ingress.openapi.operation import (
    ANYBODY,
    JSON,
    TEXT,
    VIEWER,
    Answer,
    Operation,
    Parameter,
    Schema,
    Tag,
    array,
    count,
    flag,
    nullable,
    number,
    record,
    ref,
    text,
)
from gateway.ingress.openapi.structs import of, of_type
from gateway.ingress.preferences.override import RaceOverride
from gateway.steering.leaderboard import Leaderboard

SCHEMAS: dict[str, Schema] = {
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


def operations() -> list[Operation]:
    """Return the operations."""
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
