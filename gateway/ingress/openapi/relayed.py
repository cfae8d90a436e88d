"""The APIs with routing and failover but without races, and what is done with stored responses."""

from collections.abc import Mapping

import msgspec

from gateway.errors import InvalidRequest, ResponseNotFound
from gateway.ingress.openapi.headers import CALL_HEADERS, IDENTIFYING, OF_CALLS, REQUEST_ID
from gateway.ingress.openapi.operation import (
    CALLER,
    CLIENT,
    EVENTS,
    JSON,
    TEXT,
    Access,
    Answer,
    Body,
    Operation,
    Parameter,
    Schema,
    Tag,
    count,
    record,
    ref,
    text,
)
from gateway.ingress.openapi.raced import MODEL, OF_UPSTREAM, OWN_FIELDS
from gateway.ingress.openapi.raced import OF_CALLS as ERRORS
from gateway.ingress.relayed.apis import (
    COUNT_TOKENS,
    EDITS,
    EMBEDDINGS,
    FORM,
    GENERATIONS,
    MODERATIONS,
    RERANK,
    SPEECH,
    TRANSCRIPTIONS,
    TRANSLATIONS,
    VARIATIONS,
    RelayedApi,
)
from gateway.ingress.relayed.counting import ESTIMATED

_ANY: Schema = {"type": "object"}
_FILES = frozenset({"file", "image", "image[]", "images"})
_SUBTITLES: Mapping[str, Schema] = {JSON: _ANY, "text/*": TEXT, "application/x-subrip": TEXT}
_AS_IT_IS = "The provider's answer, as it is."


class _Api(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of an API beside what its ``RelayedApi`` knows."""

    id: str
    summary: str
    content: Mapping[str, Schema] = msgspec.field(default_factory=lambda: {JSON: _ANY})


_APIS: Mapping[str, tuple[RelayedApi, _Api]] = {
    "/v1/embeddings": (
        EMBEDDINGS,
        _Api(id="createEmbedding", summary="Embeddings", content={JSON: ref("Embeddings")}),
    ),
    "/v1/moderations": (MODERATIONS, _Api(id="createModeration", summary="Moderations")),
    "/v1/rerank": (RERANK, _Api(id="rerank", summary="Documents ranked for a query")),
    "/v2/rerank": (RERANK, _Api(id="rerankV2", summary="The same, where Cohere's second version has it")),
    "/v1/audio/speech": (
        SPEECH,
        _Api(id="createSpeech", summary="Text to speech", content={"audio/*": {}, EVENTS: TEXT}),
    ),
    "/v1/audio/transcriptions": (
        TRANSCRIPTIONS,
        _Api(id="createTranscription", summary="Speech to text", content=_SUBTITLES),
    ),
    "/v1/audio/translations": (
        TRANSLATIONS,
        _Api(id="createTranslation", summary="Speech to English text", content=_SUBTITLES),
    ),
    "/v1/images/generations": (GENERATIONS, _Api(id="createImage", summary="Pictures from a description")),
    "/v1/images/edits": (EDITS, _Api(id="createImageEdit", summary="Pictures changed as described")),
    "/v1/images/variations": (VARIATIONS, _Api(id="createImageVariation", summary="Variations of a picture")),
}
_DESCRIPTION = (
    "Sent to one deployment after the other, the best first, until one answers. Fields that are not listed are passed"
    " on as they are."
)


def operations() -> list[Operation]:
    """Return the operations of these APIs."""
    return [
        *(_operation(path, api, said) for path, (api, said) in _APIS.items()),
        _COUNTING,
        *_stored_responses(),
    ]


def _operation(path: str, api: RelayedApi, said: _Api) -> Operation:
    return Operation(
        method="POST",
        path=path,
        id=said.id,
        tag=Tag.RELAYED,
        summary=said.summary,
        description=_DESCRIPTION,
        access=CALLER,
        parameters=CALL_HEADERS,
        body=Body(content={media: _body(api, media) for media in api.takes}),
        answers={200: Answer(description=_AS_IT_IS, content=said.content, headers=OF_CALLS)},
        errors=ERRORS,
    )


def _body(api: RelayedApi, media: str) -> Schema:
    """Return the schema of a body: one of alternative names is enough, and the model may have a default."""
    properties: dict[str, Schema] = {"model": MODEL}
    required = [] if api.kind is not None else ["model"]
    either: list[Schema] = []
    for field, hint in api.demands.items():
        names = field.split("|")
        for name in names:
            is_file = media == FORM and name in _FILES
            properties[name] = {"description": hint, **({"type": "string", "format": "binary"} if is_file else {})}
        if len(names) == 1:
            required.append(field)
        else:
            either.append({"anyOf": [{"required": [name]} for name in names]})
    own = OWN_FIELDS if media == JSON else {name: text("JSON, as in bodies of JSON.") for name in OWN_FIELDS}
    schema = {"type": "object", "properties": {**properties, **own}, "required": required}
    return {**schema, "allOf": either} if either else schema


_COUNTING = Operation(
    method="POST",
    path=f"/v1/{COUNT_TOKENS.path}",
    id="countTokens",
    tag=Tag.RELAYED,
    summary="How many tokens a prompt has",
    description="Asks a deployment that speaks Anthropic's messages. If none does, the number is estimated.",
    access=CALLER,
    parameters=CALL_HEADERS,
    body=Body(
        content={
            JSON: {
                "type": "object",
                "properties": {
                    "model": MODEL,
                    "messages": {"type": "array", "minItems": 1, "items": {"type": "object"}},
                    **OWN_FIELDS,
                },
                "required": ["model", "messages"],
            }
        },
        example={"model": "demo-chat", "messages": [{"role": "user", "content": "Say hello."}]},
    ),
    answers={
        200: Answer(
            description="The number of tokens.",
            content={JSON: record({"input_tokens": count()})},
            headers=(*OF_CALLS, ESTIMATED),
        )
    },
    errors=ERRORS,
    error_schema="MessagesError",
)

_RESPONSE_ID = Parameter(name="id", place="path", description="The id of a response that was stored for this key.")
_OF_STORED = (*IDENTIFYING, "x-holeshot-provider", "x-holeshot-deployment")


def _stored_responses() -> list[Operation]:
    def stored(method: str, rest: str, name: str, summary: str, access: Access) -> Operation:
        return Operation(
            method=method,
            path=f"/v1/responses/{{id}}{rest}",
            id=name,
            tag=Tag.RELAYED,
            summary=summary,
            description="Passed on to the deployment that stores the response. No model is asked: this is not a call.",
            access=access,
            parameters=(_RESPONSE_ID, REQUEST_ID),
            answers={200: Answer(description=_AS_IT_IS, content={JSON: _ANY}, headers=_OF_STORED)},
            errors=(InvalidRequest, ResponseNotFound, *OF_UPSTREAM),
            error_schema="Error",
        )

    return [
        stored("GET", "", "getResponse", "A stored response", CLIENT),
        stored("GET", "/input_items", "listInputItems", "The input of a stored response", CLIENT),
        stored("POST", "/cancel", "cancelResponse", "Cancel a response that runs in the background", CALLER),
        stored("DELETE", "", "deleteResponse", "Delete a stored response", CALLER),
    ]
