"""The paths of clouds that sell Claude: clients of a cloud ask the gateway instead, and get the cloud's answers.

The address has the model, and whether to stream; the body has the version, and at Bedrock the betas. Requests, also in
Converse, are read as Messages, so that any deployment of the model answers. Bedrock's answers come in AWS's frames, its
errors in its own form. Sources: lib/vertex/_client.py, lib/bedrock/_client.py and _mantle.py of Anthropic's SDK 2.14
for Python, and botocore 1.44.8, read on 2026-11-30.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from gateway.api.client_sinks import FramedSink
from gateway.api.context import CONTEXT
from gateway.api.endpoint import Endpoint
from gateway.api.endpoints.messages import MESSAGES_ENDPOINT, read_messages
from gateway.api.models import json_of, models_for
from gateway.api.request import ParsedRequest, StreamFormat
from gateway.api.resolved_model import IGNORED
from gateway.core.errors import InvalidRequest, ModelNotFound
from gateway.http import JSON, Contents
from providers import IN_BODY, UNREADABLE
from providers.dialects import (
    DEFAULT_MAX_TOKENS,
    MESSAGES,
    ConverseAnswer,
    Details,
    Dialect,
    Malformed,
    TokenCounting,
    in_frame,
    messages_of_converse,
    raw_json,
)

if TYPE_CHECKING:
    from aiohttp import web

_TRUE, _FALSE = msgspec.Raw(b"true"), msgspec.Raw(b"false")
_VERSION, _LIMIT = "anthropic_version", "max_tokens"
_DATED = re.compile(r"\d{4}-\d\d-\d\d")  # of Anthropic's own API; a cloud's version has the cloud's name
_betas = msgspec.json.Decoder(list[str])
_words = msgspec.json.Decoder(str)


def _read(contents: Contents, race_header: str | None, settings: Any = None) -> ParsedRequest:
    """Read a body as one of Messages, with the fields that stand for headers (``anthropic_beta``)."""
    fields = dict(contents.fields)
    headers = _taken_headers(fields)
    parsed = read_messages(msgspec.structs.replace(contents, fields=fields), race_header, settings)
    return msgspec.structs.replace(parsed, headers=headers)


def _taken_headers(fields: dict[str, msgspec.Raw]) -> Mapping[str, str]:
    """Remove the fields that stand for headers from a body; return the headers."""
    headers = {"anthropic-version": _version(fields.pop(_VERSION, None)), "anthropic-beta": _betas_of(fields)}
    return {name: value for name, value in headers.items() if value}


def _version(raw: msgspec.Raw | None) -> str:
    try:
        version = "" if raw is None else _words.decode(raw)
    except msgspec.ValidationError:
        return ""
    return version if _DATED.fullmatch(version) else ""


def _betas_of(fields: dict[str, msgspec.Raw]) -> str:
    """Remove the betas from a body and return them; other values stay, and are refused like unknown fields."""
    try:
        betas = _betas.decode(fields.get(IN_BODY, b"[]"))
    except msgspec.ValidationError:
        return ""
    fields.pop(IN_BODY, None)
    return ", ".join(beta for beta in betas if beta.isprintable() and beta.isascii())


def _addressed(request: "web.Request", contents: Contents, names: Iterator[str], streamed: str) -> Contents:
    """Return the body in the form of Anthropic's own API, with the model and ``stream`` from the path.

    Of the model's ``names`` the first that is configured counts: as sent, as the maker writes it, or without the date.
    """
    model_of, candidates = request.app[CONTEXT].fleet.known, list(names)
    fields_of_address = {
        "model": raw_json(next((name for name in candidates if model_of(name) is not None), candidates[0])),
        "stream": _TRUE if request.path.endswith(streamed) else _FALSE,
    }
    return msgspec.structs.replace(contents, fields={**contents.fields, **fields_of_address})


def _known_as(names: Callable[[str], Iterator[str]], request: "web.Request", contents: Contents) -> Contents:
    """Return a body with the configured one of its model's ``names``; unchanged if none is configured."""
    model_of = request.app[CONTEXT].fleet.known
    try:
        name = _words.decode(contents.fields.get("model", b""))
    except msgspec.DecodeError:
        return contents
    configured = next((each for each in names(name) if model_of(each) is not None), name)
    if configured == name:
        return contents
    return msgspec.structs.replace(contents, fields={**contents.fields, "model": raw_json(configured)})


# Vertex AI: any project and location.

_PROJECTS = "/v1/projects/"
_AT_VERTEX = f"{_PROJECTS}{{project}}/locations/{{location}}/publishers/anthropic/models"
_STREAMED_RAW = ":streamRawPredict"


def _names_at_vertex(name: str) -> Iterator[str]:
    """Yield ``claude-opus-4-6@20260205``, ``claude-opus-4-6-20260205``, ``claude-opus-4-6``; ``@default``: no date."""
    yield name
    model, _, snapshot = name.partition("@")
    if snapshot.isdecimal():
        yield f"{model}-{snapshot}"
    yield model


def _of_vertex(request: "web.Request", contents: Contents) -> Contents:
    return _addressed(request, contents, _names_at_vertex(request.match_info["model"]), _STREAMED_RAW)


def _to_count(request: "web.Request", contents: Contents) -> Contents:
    """Return a prompt without the version, with the model's configured name."""
    fields = {name: value for name, value in contents.fields.items() if name != _VERSION}
    return _known_as(_names_at_vertex, request, msgspec.structs.replace(contents, fields=fields))


_COUNTER = MESSAGES_ENDPOINT.counter
assert _COUNTER is not None

# Bedrock's InvokeModel.

_MODEL = "/model/"
_ANY_BYTES = "application/octet-stream"  # the content type that boto3 gives any body, unless told otherwise
_STREAMED_INVOKE = "/invoke-with-response-stream"
# us.anthropic.claude-sonnet-4-5-20250929-v1:0 and the ARN of such a profile: region, maker and version are not part of
# the model's name. The name of an operator's own profile says nothing.
_PROFILE = re.compile(r"(?:arn:[^/]*/)?(?:[a-z-]+\.)?anthropic\.(?P<model>.+?)(?:-v\d+(?::\d+)?)?")
_DATE = re.compile(r"-20\d{6}$")


def _names_at_bedrock(name: str) -> Iterator[str]:
    """Yield a name as sent, as Anthropic has it, and without the date."""
    yield name
    if (profile := _PROFILE.fullmatch(name)) is not None:
        yield profile["model"]
        yield _DATE.sub("", profile["model"])


def _of_bedrock(request: "web.Request", contents: Contents) -> Contents:
    return _addressed(request, contents, _names_at_bedrock(request.match_info["model"]), _STREAMED_INVOKE)


def _in_frames(contents: Contents, race_header: str | None, settings: Any = None) -> ParsedRequest:
    return msgspec.structs.replace(_read(contents, race_header, settings), written=StreamFormat.FRAMES, framed=in_frame)


# Bedrock's Converse, which also serves other models there: any model may be asked in it here.

_CONVERSE, _STREAMED_CONVERSE = "/converse", "/converse-stream"
_OURS = ("model", "stream", _LIMIT, "race")  # fields that are not the client's, or not Converse's


def _of_converse(request: "web.Request", contents: Contents) -> Contents:
    """Return the body with the fields from the address, and a maximum of tokens."""
    named = _addressed(request, contents, _names_at_bedrock(request.match_info["model"]), _STREAMED_CONVERSE)
    model = request.app[CONTEXT].fleet.known(_words.decode(named.fields["model"]))
    most = inf if model is None else model.common.max_output_tokens
    limit = raw_json(DEFAULT_MAX_TOKENS if most == inf else int(most))
    return msgspec.structs.replace(named, fields={**named.fields, _LIMIT: limit})


def _as_messages(contents: Contents, race_header: str | None, settings: Any = None) -> ParsedRequest:
    """Read a body of Converse as one of Messages.

    Raises:
        InvalidRequest: a field is invalid, or has no place in Messages.

    """
    del settings
    own_fields = {name: contents.fields[name] for name in _OURS if name in contents.fields}
    converse = {name: value for name, value in contents.fields.items() if name not in _OURS}
    try:
        messages = messages_of_converse(converse, int(bytes(own_fields.pop(_LIMIT))))
    except Malformed as error:
        raise InvalidRequest(error.message, param=error.param) from None
    fields = {**messages.fields, **own_fields}
    headers = _taken_headers(fields)
    parsed = read_messages(msgspec.structs.replace(contents, fields=fields, scan_media=None), race_header)
    answer = ConverseAnswer(messages.paths)
    needs = parsed.needs if messages.is_limited else msgspec.structs.replace(parsed.needs, max_tokens=None)
    return msgspec.structs.replace(
        parsed,
        needs=needs,
        headers=headers,
        response_headers={IGNORED: ", ".join(messages.ignored)} if messages.ignored else {},
        written=StreamFormat.FRAMES,
        framed=answer.frames_of,
        told_as=answer.whole,
    )


# Bedrock's CountTokens: a body of InvokeModel, or the prompt of Converse, within another body.

_COUNTED = "/count-tokens"


class _Body(msgspec.Struct):
    body: bytes


class _ToCount(msgspec.Struct, rename="camel"):
    invoke_model: _Body | None = None
    converse: dict[str, msgspec.Raw] | None = None


_OF_ANSWERS = frozenset({"model", "stream", _LIMIT})  # not for counting tokens


class _Counted(msgspec.Struct):
    input_tokens: int


_to_count_decoder, _counted_decoder = msgspec.json.Decoder(_ToCount), msgspec.json.Decoder(_Counted)
_body_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _to_count_of_bedrock(parsed: ParsedRequest) -> ParsedRequest:
    """Return a request of CountTokens as one of Messages.

    Raises:
        InvalidRequest: there is no prompt, or Messages cannot express it.

    """
    try:
        input_ = _to_count_decoder.decode(parsed.fields.get("input", b"null"))
        counted: Mapping[str, msgspec.Raw] | None = None
        if input_.invoke_model is not None:
            counted = _body_decoder.decode(input_.invoke_model.body)
        elif input_.converse is not None:
            counted = messages_of_converse(input_.converse, DEFAULT_MAX_TOKENS).fields
    except UNREADABLE as error:
        raise InvalidRequest(f"'input' is invalid: {error}", param="input") from None
    except Malformed as error:
        raise InvalidRequest(error.message, param=error.param) from None
    if counted is None:
        raise InvalidRequest("'input' has neither 'invokeModel' nor 'converse'", param="input")
    fields = {name: value for name, value in counted.items() if name not in _OF_ANSWERS}
    return msgspec.structs.replace(parsed, fields=fields, headers=_taken_headers(fields), told_as=_as_counted)


def _as_counted(body: bytes) -> bytes:
    return msgspec.json.encode({"inputTokens": _counted_decoder.decode(body).input_tokens})


# Bedrock's list of inference profiles, in which clients look up models: here each model is a profile.


class ProfiledModel(msgspec.Struct, frozen=True, rename="camel"):
    """The model of a profile."""

    model_arn: str


class InferenceProfile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A model in the form of one of Bedrock's inference profiles."""

    inference_profile_id: str
    inference_profile_name: str
    inference_profile_arn: str
    models: list[ProfiledModel]
    status: Literal["ACTIVE"] = "ACTIVE"
    type: Literal["SYSTEM_DEFINED"] = "SYSTEM_DEFINED"


class InferenceProfiles(msgspec.Struct, frozen=True, rename="camel"):
    """All profiles."""

    inference_profile_summaries: list[InferenceProfile]


PROFILES = "/inference-profiles"


def _profile(model: str) -> InferenceProfile:
    maker = "anthropic." if model.startswith("claude") else ""  # clients read the maker from the ARN
    return InferenceProfile(
        inference_profile_id=model,
        inference_profile_name=model,
        inference_profile_arn=f"arn:aws:bedrock:::inference-profile/{model}",
        models=[ProfiledModel(f"arn:aws:bedrock:::foundation-model/{maker}{model}")],
    )


async def list_profiles(request: "web.Request") -> "web.Response":
    """List the models that this client may use, in the form of Bedrock's profiles."""
    return json_of(InferenceProfiles([_profile(model) for model in await models_for(request)]))


async def get_profile(request: "web.Request") -> "web.Response":
    """Describe one inference profile, by any of its names.

    Raises:
        ModelNotFound: this client may use no such model.

    """
    profile_id, models = request.match_info["id"], await models_for(request)
    name = next((each for each in _names_at_bedrock(profile_id) if each in models), None)
    if name is None:
        raise ModelNotFound(f"there is no inference profile {profile_id!r}: each model is one, by its name", param="id")
    return json_of(_profile(name))


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


# Messages with Bedrock's errors: requests and answers are those of Messages.
AT_BEDROCK = msgspec.structs.replace(MESSAGES, error_body=_error_body)


def error_headers(dialect: Dialect, status: int) -> Mapping[str, str]:
    """Return the headers of an error besides those of every API."""
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
_AS_COUNT = msgspec.structs.replace(
    _AS_BEDROCK,
    id="bedrock",
    summary="Amazon Bedrock's CountTokens",
    prompt={},
    example={"input": {"converse": {"messages": [{"role": "user", "content": [{"text": "Say hello."}]}]}}},
    required=(),
    answer=None,
)
_AS_CONVERSE = msgspec.structs.replace(
    _AS_BEDROCK,
    id="converse",
    summary="Amazon Bedrock's Converse",
    example={
        "messages": [{"role": "user", "content": [{"text": "Say hello."}]}],
        "inferenceConfig": {"maxTokens": 100},
    },
    required=(),
    answer=None,
    events="At `…-stream` Converse's events, each in a frame of AWS's.",
)
DOOR_ENDPOINTS: tuple[Endpoint, ...] = (
    msgspec.structs.replace(
        _COUNTER,
        description=_AS_VERTEX,
        routes=(f"{_AT_VERTEX}/count-tokens:rawPredict",),
        addressed=_to_count,
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
        _COUNTER,
        description=_AS_COUNT,
        unpacked=_to_count_of_bedrock,
        routes=(f"{_MODEL}{{model:.+}}{_COUNTED}",),
        counts=TokenCounting("model/{model}/count-tokens", "inputTokens", "input"),
        addressed=_of_bedrock,
    ),
    msgspec.structs.replace(
        MESSAGES_ENDPOINT,
        description=_AS_CONVERSE,
        read=_as_messages,
        routes=(f"{_MODEL}{{model:.+}}{_CONVERSE}",),
        streamed=(f"{_MODEL}{{model:.+}}{_STREAMED_CONVERSE}",),
        addressed=_of_converse,
    ),
    msgspec.structs.replace(
        MESSAGES_ENDPOINT,
        description=_AS_BEDROCK,
        read=_in_frames,
        takes=(JSON, _ANY_BYTES),
        routes=(f"{_MODEL}{{model:.+}}/invoke",),
        streamed=(f"{_MODEL}{{model:.+}}{_STREAMED_INVOKE}",),
        addressed=_of_bedrock,
    ),
)
_by_any_name = partial(_known_as, _names_at_bedrock)  # AnthropicBedrockMantle sends Bedrock's names
# Messages below another path, as at Microsoft Foundry, Bedrock and others.
BELOW_ANTHROPIC: tuple[Endpoint, ...] = (
    msgspec.structs.replace(MESSAGES_ENDPOINT, addressed=_by_any_name),
    msgspec.structs.replace(_COUNTER, addressed=_by_any_name),
)
# The dialect of errors, by the beginning of the path.
TOLD_AS: Mapping[str, Dialect] = {_PROJECTS: MESSAGES, _MODEL: AT_BEDROCK, PROFILES: AT_BEDROCK}
