"""The description of one API: its paths, how its bodies are read, and its documentation."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from gateway.api.relayed_api import RelayedApi, counting_api
from gateway.api.request import Decoders, ParsedRequest
from gateway.core.errors import ApiError
from gateway.http import JSON, Contents, Media
from gateway.settings import Settings
from providers.dialects import PIVOT, Dialect, Recalling, TokenCounting, raw_json

if TYPE_CHECKING:
    from aiohttp import web

# The part of /openapi.json about a raced API that does not follow from the dialect and decoders.


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """Texts and JSON Schemas for one API. Examples lack ``model``, which is added to each.

    For an API whose answers pass unread, the body's schema follows from the required fields.
    """

    id: str  # of the operation: generated SDKs name methods after it
    summary: str
    prompt: Mapping[str, Any] = {}
    example: Mapping[str, Any] = {}
    answer: str | None = None  # the name of the schema of a complete answer; None: any object
    content: tuple[str, ...] = (JSON,)  # media types of answers, besides events of tokens
    events: str = ""
    required: tuple[str, ...] = ()  # fields, beside the model and the prompt
    optional_prompt: bool = False
    errors: tuple[type[ApiError], ...] = ()  # beyond those of every raced call
    headers: Mapping[str, str] = {}  # of answers, with descriptions, beyond those of every raced call
    error_schema: str = "Error"
    streamed_as: str | None = None  # the media type of a streamed answer that is not events


def _unread(contents: Contents, race_header: str | None, settings: Settings) -> ParsedRequest:
    raise NotImplementedError


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One API: a row of the table. Answers are read in the dialect, or pass unread (``relayed``).

    Without ``media`` prompts are only text. Paths may contain {model}.
    """

    dialect: Dialect = PIVOT
    relayed: RelayedApi | None = None
    # Reads a body, unless the answer passes unread. The second argument: the header with the race settings.
    read: Callable[[Contents, str | None, Settings], ParsedRequest] = _unread
    description: Description
    fields: Decoders = {}  # of fields that are read, besides the model, the prompt and the gateway's own
    media: Media | None = None
    routes: tuple[str, ...] = ()  # paths at the gateway; empty: /v1/ and the dialect's
    streamed: tuple[str, ...] = ()  # the same for streamed answers, if the path decides about streaming
    takes: tuple[str, ...] = (JSON,)  # media types of bodies, if answers are read: names for JSON
    below: str | None = None  # prefix of all paths whose errors have this API's form; None: only the API's paths
    counted: tuple[str, ...] = ()  # paths that count tokens; empty: /v1/ and the dialect's, if it has one
    # Copies the request's parts of the URL into the fields; None: the URL has none.
    addressed: "Callable[[web.Request, Contents], Contents] | None" = None
    # Takes the prompt to count out of another object; None: the prompt is the request itself.
    unpacked: "Callable[[ParsedRequest], ParsedRequest] | None" = None
    recalls: Recalling | None = None  # how requests name earlier answers, which the gateway may have
    counts: TokenCounting | None = None  # for an API that only counts: how to count the tokens of a prompt

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths at the gateway."""
        return (*self.routes, *self.streamed) or (f"/v1/{self.dialect.path}",)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The prefixes of all paths whose errors have this API's form."""
        return self.paths if self.below is None else (self.below,)

    @property
    def counter(self) -> "Endpoint | None":
        """The API that counts the tokens of such prompts (``/v1/messages/count_tokens``); None: no such API."""
        counts = self.dialect.counting
        if counts is None:
            return None
        return msgspec.structs.replace(
            self,
            relayed=counting_api(self.dialect.name, counts.path),
            counts=counts,
            routes=self.counted or (f"/v1/{counts.path}",),
            streamed=(),
            addressed=None if self.addressed is None else _with_model,
        )


def _with_model(request: "web.Request", contents: Contents) -> Contents:
    """Add the model from the URL to the body's fields."""
    return msgspec.structs.replace(contents, fields={**contents.fields, "model": raw_json(request.match_info["model"])})
