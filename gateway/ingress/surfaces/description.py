"""What /openapi.json says of a raced API, beside what its dialect and its decoders know."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.errors import ApiError
from gateway.ingress.openapi.operation import Schema


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """The words and schemas for one API. ``model`` is in no example: it is added to each."""

    id: str  # of the operation: SDKs that are made from the document call their methods so
    summary: str
    prompt: Schema
    example: Mapping[str, Any]
    answer: Schema  # of a whole answer
    events: str
    required: tuple[str, ...] = ()  # fields, beside the model and the prompt
    optional_prompt: bool = False
    errors: tuple[type[ApiError], ...] = ()  # beyond those of every raced call
    headers: Mapping[str, Schema] = {}  # of answers, beyond those of every raced call
    error_schema: str = "Error"
