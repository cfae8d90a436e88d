"""The paths of clouds that sell Claude: their clients ask the gateway in a cloud's place, and are answered as there.

The model is in the address, and whether the answer streams; the version is in the body, and at Bedrock the betas. What
is asked is read as Messages, so that any deployment of the model answers. Bedrock's answers are in its frames and its
errors in its shape. Sources: lib/vertex/_client.py, lib/bedrock/_client.py and _stream_decoder.py of Anthropic's SDK
2.14 for Python, read on 2026-11-30.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from gateway.api.client_sinks import FramedSink
from gateway.api.context import CONTEXT
from gateway.api.endpoint import Endpoint
from gateway.api.endpoints import MESSAGES_ENDPOINT, read_messages
from gateway.api.json_body import Contents
from gateway.api.request import ParsedRequest, Written
from providers import IN_BODY
from providers.dialects import MESSAGES, Details, Dialect, raw_json

if TYPE_CHECKING:
    from aiohttp import web

_TRUE, _FALSE = msgspec.Raw(b"true"), msgspec.Raw(b"false")
_VERSION = "anthropic_version"
_DATED = re.compile(r"\d{4}-\d\d-\d\d")  # a version of Anthropic's own; a cloud's says its name
_betas = msgspec.json.Decoder(list[str])
_words = msgspec.json.Decoder(str)


def _read(contents: Contents, race_header: str | None, settings: Any = None) -> ParsedRequest:
    """Read a body as one of Messages, with what it says in the place of headers."""
    fields = dict(contents.fields)
    said = {"anthropic-version": _version(fields.pop(_VERSION, None)), "anthropic-beta": _betas_of(fields)}
    parsed = read_messages(msgspec.structs.replace(contents, fields=fields), race_header, settings)
    return msgspec.structs.replace(parsed, headers={name: value for name, value in said.items() if value})


def _version(raw: msgspec.Raw | None) -> str:
    try:
        version = "" if raw is None else _words.decode(raw)
    except msgspec.ValidationError:
        return ""
    return version if _DATED.fullmatch(version) else ""


def _betas_of(fields: dict[str, msgspec.Raw]) -> str:
    """Return the betas of a body, which loses them; other words stay, and are refused as unknown fields are."""
    try:
        betas = _betas.decode(fields.get(IN_BODY, b"[]"))
    except msgspec.ValidationError:
        return ""
    fields.pop(IN_BODY, None)
    return ", ".join(beta for beta in betas if beta.isprintable() and beta.isascii())


def _addressed(request: "web.Request", contents: Contents, names: Iterator[str], streamed: str) -> Contents:
    """Return the body as the maker's own API has it, with what the address says.

    Of the ``names`` of the model the first counts that is known here: as it was sent, as its maker calls it, or without
    its date.
    """
    known, asked = request.app[CONTEXT].fleet.known, list(names)
    said = {
        "model": raw_json(next((name for name in asked if known(name) is not None), asked[0])),
        "stream": _TRUE if request.path.endswith(streamed) else _FALSE,
    }
    return msgspec.structs.replace(contents, fields={**contents.fields, **said})


# Vertex AI: any project and location.

_PROJECTS = "/v1/projects/"
_AT_VERTEX = f"{_PROJECTS}{{project}}/locations/{{location}}/publishers/anthropic/models"
_STREAMED_RAW = ":streamRawPredict"


def _names_at_vertex(name: str) -> Iterator[str]:
    """Yield ``claude-opus-4-6@20260205``, ``claude-opus-4-6-20260205``, ``claude-opus-4-6``; ``@default`` is none."""
    yield name
    model, _, snapshot = name.partition("@")
    if snapshot.isdecimal():
        yield f"{model}-{snapshot}"
    yield model


def _of_vertex(request: "web.Request", contents: Contents) -> Contents:
    return _addressed(request, contents, _names_at_vertex(request.match_info["model"]), _STREAMED_RAW)


def _without_version(_: object, contents: Contents) -> Contents:
    fields = {name: value for name, value in contents.fields.items() if name != _VERSION}
    return msgspec.structs.replace(contents, fields=fields)


_COUNTER = MESSAGES_ENDPOINT.counter
assert _COUNTER is not None

# Bedrock's InvokeModel.

_MODEL = "/model/"
_STREAMED_INVOKE = "/invoke-with-response-stream"
# us.anthropic.claude-sonnet-4-5-20250929-v1:0 and the ARN of such a profile: the region, the maker and the version are
# not of the model's name. A profile of the operator's own has a name that says nothing.
_PROFILE = re.compile(r"(?:arn:[^/]*/)?(?:[a-z-]+\.)?anthropic\.(?P<model>.+?)(?:-v\d+(?::\d+)?)?")
_DATE = re.compile(r"-20\d{6}$")


def _names_at_bedrock(name: str) -> Iterator[str]:
    """Yield a name as it was sent, as Anthropic has it, and without its date."""
    yield name
    if (found := _PROFILE.fullmatch(name)) is not None:
        yield found["model"]
        yield _DATE.sub("", found["model"])


def _of_bedrock(request: "web.Request", contents: Contents) -> Contents:
    return _addressed(request, contents, _names_at_bedrock(request.match_info["model"]), _STREAMED_INVOKE)


def _in_frames(contents: Contents, race_header: str | None, settings: Any = None) -> ParsedRequest:
    return msgspec.structs.replace(_read(contents, race_header, settings), written=Written.FRAMES)


# docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_InvokeModel.html and CommonErrors.html, 2026-11-30.
_KINDS: Mapping[int, str] = {
    401: "UnrecognizedClientException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
    504: "ModelTimeoutException",
    529: "ServiceUnavailableException",
}
_FIRST_SERVER_STATUS = 500


def _error_body(status: int, type_: str, message: str, request_id: str | None, details: Details = ()) -> bytes:
    del status, type_, request_id, details  # the kind is in a header
    return msgspec.json.encode({"message": message})


# Messages as Bedrock tells errors of it: what is asked is read and answered as Messages.
AT_BEDROCK = msgspec.structs.replace(MESSAGES, error_body=_error_body)


def error_headers(dialect: Dialect, status: int) -> Mapping[str, str]:
    """Return what the headers of an error say beside those of every API."""
    if dialect is not AT_BEDROCK:
        return {}
    otherwise = "InternalServerException" if status >= _FIRST_SERVER_STATUS else "ValidationException"
    return {"x-amzn-errortype": _KINDS.get(status, otherwise)}


_SAID = MESSAGES_ENDPOINT.description
_AS_VERTEX = msgspec.structs.replace(
    _SAID,
    id="rawPredict",
    summary="Anthropic's messages, for clients of Claude at Vertex AI",
    example={**_SAID.example, _VERSION: "vertex-2023-10-16"},
)
_AS_BEDROCK = msgspec.structs.replace(
    _SAID,
    id="invokeModel",
    summary="Anthropic's messages, for clients of Claude at Amazon Bedrock",
    example={**_SAID.example, _VERSION: "bedrock-2023-05-31"},
    events="At `…-with-response-stream` Anthropic's events, each in a frame of AWS's.",
    error_schema="BedrockError",
    streamed_as=FramedSink.content_type,
)
DOOR_ENDPOINTS: tuple[Endpoint, ...] = (
    msgspec.structs.replace(
        _COUNTER,
        description=_AS_VERTEX,
        routes=(f"{_AT_VERTEX}/count-tokens:rawPredict",),
        addressed=_without_version,
    ),
    msgspec.structs.replace(
        MESSAGES_ENDPOINT,
        description=_AS_VERTEX,
        read=_read,
        routes=(f"{_AT_VERTEX}/{{model:.+}}:rawPredict",),
        streamed=(f"{_AT_VERTEX}/{{model:.+}}{_STREAMED_RAW}",),
        addressed=_of_vertex,
    ),
    msgspec.structs.replace(
        MESSAGES_ENDPOINT,
        description=_AS_BEDROCK,
        read=_in_frames,
        routes=(f"{_MODEL}{{model:.+}}/invoke",),
        streamed=(f"{_MODEL}{{model:.+}}{_STREAMED_INVOKE}",),
        addressed=_of_bedrock,
    ),
)
# As what the errors of paths that begin so are told.
TOLD_AS: Mapping[str, Dialect] = {_PROJECTS: MESSAGES, _MODEL: AT_BEDROCK}
