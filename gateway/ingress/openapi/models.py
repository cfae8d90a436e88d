"""The list of models, in three formats."""

from gateway.errors import InvalidRequest, ModelNotFound
from gateway.ingress.openapi.operation import (
    CLIENT,
    JSON,
    TEXT,
    Answer,
    Operation,
    Parameter,
    Schema,
    Tag,
    array,
    count,
    flag,
    instant,
    nullable,
    record,
    ref,
    text,
)

_OPENAI = record(
    {
        "id": text(),
        "object": text(one_of=("model",)),
        "created": count("Always 0: a configured name has no date."),
        "owned_by": text(one_of=("holeshot",)),
        "deployments": array(TEXT),
        "name": text(),
    },
    {
        "context_length": count("The smallest of all deployments, in tokens."),
        "top_provider": record({}, {"context_length": count(), "max_completion_tokens": count()}),
        "pricing": {
            "type": "object",
            "description": "US dollars per token, the highest of all deployments.",
            "additionalProperties": TEXT,
        },
        "supported_parameters": array(TEXT),
        "architecture": record({"input_modalities": array(TEXT), "output_modalities": array(TEXT)}),
    },
    "A model in OpenAI's format, with what is known about it in OpenRouter's fields.",
)
_ANTHROPIC = record(
    {
        "type": text(one_of=("model",)),
        "id": text(),
        "display_name": text(),
        "created_at": instant(),
        "lifecycle": text(),
        "max_input_tokens": nullable(count()),
        "max_tokens": nullable(count()),
    },
    about="A model in Anthropic's format.",
)
SCHEMAS: dict[str, Schema] = {"Model": _OPENAI, "AnthropicModel": _ANTHROPIC}

_FORMAT = "In Anthropic's format for requests with `anthropic-version` or `x-api-key`, else in OpenAI's."
_LIST = record({"object": text(one_of=("list",)), "data": array(ref("Model"))})
_PAGE = record(
    {
        "data": array(ref("AnthropicModel")),
        "has_more": flag(),
        "first_id": nullable(TEXT),
        "last_id": nullable(TEXT),
    }
)


def operations() -> list[Operation]:
    """Return the operations."""
    paging = "Anthropic's format only: "
    return [
        Operation(
            method="GET",
            path="/v1/models",
            id="listModels",
            tag=Tag.MODELS,
            summary="The models this key may use",
            description=_FORMAT,
            access=CLIENT,
            parameters=(
                Parameter(name="limit", schema=count(), description=f"{paging}models in a page, 1 to 1000."),
                Parameter(name="after_id", description=f"{paging}the page after this model."),
                Parameter(name="before_id", description=f"{paging}the page before this model."),
            ),
            answers={200: Answer(description="The models.", content={JSON: {"anyOf": [_LIST, _PAGE]}})},
            errors=(InvalidRequest,),
        ),
        Operation(
            method="GET",
            path="/v1/models/{id}",
            id="getModel",
            tag=Tag.MODELS,
            summary="One model",
            description=_FORMAT,
            access=CLIENT,
            parameters=(Parameter(name="id", place="path", description="Its name; slashes need no escape."),),
            answers={
                200: Answer(description="The model.", content={JSON: {"anyOf": [ref("Model"), ref("AnthropicModel")]}})
            },
            errors=(InvalidRequest, ModelNotFound),
        ),
    ]
