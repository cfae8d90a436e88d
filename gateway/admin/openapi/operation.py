"""One operation of the HTTP API as /openapi.json describes it: its input, access and answers, and their schemas."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.api import ProviderPreferences, RaceOverride
from gateway.core.errors import (
    ApiError,
    Forbidden,
    HeaderIgnored,
    InternalError,
    KeyExpired,
    KeysNotLoaded,
    KeyUnusable,
    NoKey,
    SessionEnded,
    WrongKey,
)
from gateway.keys import OF_FILE, ShownClient
from gateway.settings import ClientSettings

JSON = "application/json"
EVENTS = "text/event-stream"


class Tag(StrEnum):
    """The groups of operations, in the order in which they are shown."""

    RACED = "Raced APIs"
    RELAYED = "Other model APIs"
    MODELS = "Models"
    STATUS = "Health and figures"
    KEYS = "Keys"
    PAGE_API = "The page's API"
    PAGE = "The page"


class Access(msgspec.Struct, frozen=True):
    """The access to an operation. ``security`` are names of security schemes; any one of them is enough."""

    words: str
    security: tuple[str, ...] = ()
    errors: tuple[type[ApiError], ...] = ()


KEY, API_KEY, GOOGLE_KEY, SESSION = "key", "apiKey", "googleKey", "session"  # the security schemes
_JUDGED = (NoKey, WrongKey, KeyExpired, Forbidden, KeysNotLoaded, KeyUnusable)
_WITH_KEY = ((KEY, API_KEY, GOOGLE_KEY), _JUDGED)
_WITH_SESSION = ((SESSION, KEY, API_KEY, GOOGLE_KEY), (*_JUDGED, SessionEnded, HeaderIgnored))

ANYBODY = Access("Needs no key.")
CLIENT = Access("Needs a key, if clients are configured.", *_WITH_KEY)
CALLER = Access("Needs a key that may make calls, if clients are configured: not a viewer's.", *_WITH_KEY)
VIEWER = Access("Needs the key of an admin, an operator or a viewer, if clients are configured.", *_WITH_KEY)
ADMIN = Access("Needs the key of an admin, if clients are configured.", *_WITH_KEY)
VISITOR = Access(
    "Needs the session or the key of an admin, an operator or a viewer, if clients are configured.", *_WITH_SESSION
)
READER = Access(
    "Needs the session or the key of an admin, an operator or a viewer, or of a person (`page.people`), who sees their"
    " own calls alone, if clients are configured.",
    *_WITH_SESSION,
)
PERSON = Access(
    "Needs the session or the token of a person: of an issuer that `page.people` names.",
    *_WITH_SESSION,
)
ADMIN_VISITOR = Access("Needs the session or the key of an admin, if clients are configured.", *_WITH_SESSION)
CALLING_VISITOR = Access(
    "Needs a session or a key that may make calls, if clients are configured: not a viewer's.", *_WITH_SESSION
)


# JSON schemas: of the structs that handlers read and return, by the names that they have in the document.

_REF = "#/components/schemas/{name}"


class Made(dict[str, Any]):
    """A schema, or another part of the document, as JSON."""


OBJECT = Made(type="object")  # with fields that are not the gateway's
TEXT = Made(type="string")


def of_type(kind: Any, about: str | None = None) -> Made:
    """Return the schema of any type that is read or written; records are in it, not referred to."""
    whole = msgspec.json.schema(kind)
    within: dict[str, Any] = whole.pop("$defs", {})

    def resolved(node: Any) -> Any:
        if isinstance(node, dict):
            if "$ref" in node:
                return resolved(within[node["$ref"].rpartition("/")[2]])
            return {name: resolved(each) for name, each in node.items() if name != "title"}
        return [resolved(each) for each in node] if isinstance(node, list) else node

    return Made(resolved(whole), **({} if about is None else {"description": about}))


def ref(name: str) -> Made:
    """Return a reference to a schema of the document."""
    return Made({"$ref": _REF.format(name=name)})


_READ = (RaceOverride, ProviderPreferences)
# Names for classes whose own names are unclear, or not unique.
_NAMES = {
    "Row": "LeaderboardRow",
    "Provider": "ProviderPreferences",
    "OpenAIModel": "Model",
    "Shown": "Target",
    "gateway.core.attempts.Role": "AttemptRole",
    "gateway.settings.sections.Role": "ClientRole",
}
_NAMES_OF_SETTINGS = {"Role": "ClientRole"}


class Schemas:
    """The schemas of the types that are ``sent``, and of the records that are read."""

    def __init__(self, sent: Iterable[Any]) -> None:
        kinds = [*dict.fromkeys(kind for kind in sent if not isinstance(kind, Made)), ShownClient]
        schemas, records = msgspec.json.schema_components(kinds, ref_template=_REF)
        for each in records.values():
            _demand_what_is_sent(each)
        self._by_kind = {kind: _tidy("", schema, _NAMES) for kind, schema in zip(kinds, schemas, strict=True)}
        read = msgspec.json.schema_components(_READ, ref_template=_REF)[1]
        client = ClientSettings.model_json_schema(ref_template=_REF.format(name="{model}"))
        del client["additionalProperties"]  # a client's description has more fields
        of_settings = {**client.pop("$defs"), "ClientSettings": _without(client, OF_FILE)}
        self.components = {
            **_named({**records, **read}, _NAMES),
            **_named(of_settings, _NAMES_OF_SETTINGS),
            **_CLIENTS,
        }

    def of(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a type that is sent: of a record a reference. What is a schema is returned unchanged."""
        schema: dict[str, Any] = kind if isinstance(kind, Made) else self._by_kind[kind]
        return schema


# A client's description is its settings beside other fields, which no struct can say.
_CLIENTS: Mapping[str, Made] = {
    "Client": Made(
        description="A client: its settings as far as they are set, and its keys.",
        allOf=[ref("ClientSettings"), ref("ShownClient")],
    ),
    "ClientWithKey": Made(
        description="A client with its new key, which is never shown again.",
        allOf=[
            ref("Client"),
            Made(OBJECT, properties={"key": Made(TEXT, description="`hs-…`")}, required=["key"]),
        ],
    ),
}


def of(kind: type) -> Made:
    """Return a reference to a record's schema."""
    return ref(_name(kind.__name__, _NAMES))


def _demand_what_is_sent(record: dict[str, Any]) -> None:
    """Demand the fields that have defaults, too: they are always sent. Those that may be missing have none."""
    if "properties" in record:
        required = record.get("required", ())
        fields: dict[str, dict[str, Any]] = record["properties"]
        record["required"] = [name for name, each in fields.items() if name in required or "default" in each]
        for each in fields.values():
            each.pop("default", None)


def _without(one: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    properties = {name: each for name, each in one["properties"].items() if name not in names}
    required = [name for name in one.get("required", ()) if name not in names]
    return {**one, "properties": properties, "required": required}


def _named(schemas: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return tidied schemas by their names in the document."""
    return {_name(name, names): _tidy("", each, names) for name, each in schemas.items()}


def _tidy(name: str, node: Any, names: Mapping[str, str]) -> Any:
    """Return a schema without titles, which repeat the names, and with descriptions in Markdown.

    A field may have one of these names too: its value is a schema, not a string.
    """
    if isinstance(node, dict):
        return {
            key: _tidy(key, each, names) for key, each in node.items() if key != "title" or not isinstance(each, str)
        }
    if isinstance(node, list):
        return [_tidy("", each, names) for each in node]
    if name == "$ref":
        return _REF.format(name=_name(node.rpartition("/")[2], names))
    return " ".join(node.replace("``", "`").split()) if name == "description" else node


def _name(name: str, names: Mapping[str, str]) -> str:
    return names.get(name, name.lstrip("_"))


# What is answered, and an operation as a whole.


class Answer(msgspec.Struct, frozen=True):
    """A successful answer: its content by media type, and the names of its described headers.

    A content is the type that the handler returns, a schema, or several types of which the handler returns one.
    """

    about: str
    content: Mapping[str, Any] = {}
    headers: Collection[str] = ()

    @property
    def kinds(self) -> Iterator[Any]:
        """The types in it."""
        for of in self.content.values():
            yield from of if isinstance(of, tuple) else (of,)

    def described(self, schemas: Schemas) -> dict[str, Any]:
        """Return the operation in the document's form."""
        found: dict[str, Any] = {"description": self.about}
        if self.headers:
            found["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in self.headers}
        if self.content:
            found["content"] = {
                media: {
                    "schema": {"anyOf": [schemas.of(each) for each in of]} if isinstance(of, tuple) else schemas.of(of)
                }
                for media, of in self.content.items()
            }
        return found


class Operation(msgspec.Struct, frozen=True):
    """One method of one path. ``errors`` are those beyond the access's; any handler may crash."""

    asked: str  # method and path
    id: str
    summary: str
    tag: Tag
    access: Access
    answers: Mapping[int, Answer]
    parameters: tuple[Made, ...] = ()
    errors: tuple[type[ApiError], ...] = ()
    body: Made | None = None
    description: str = ""
    error_schema: str = "Error"

    @property
    def method(self) -> str:
        """The method."""
        return self.asked.partition(" ")[0]

    @property
    def path(self) -> str:
        """The path."""
        return self.asked.partition(" ")[2]

    @property
    def all_errors(self) -> tuple[type[ApiError], ...]:
        """All classes of its errors."""
        return (*self.access.errors, *self.errors, InternalError)


def parameter(name: str, about: str, of: Any = str, place: str = "query") -> Made:
    """Return a parameter, of a type or a schema. Those of paths are required, others are not."""
    schema = of if isinstance(of, Made) else of_type(of)
    return Made({"name": name, "in": place, "required": place == "path", "description": about, "schema": schema})


def in_path(name: str, about: str) -> tuple[Made, ...]:
    """Return the one parameter of a path."""
    return (parameter(name, about, place="path"),)


def body(content: Mapping[str, Made], example: Any = None, *, required: bool = True) -> Made:
    """Return a request body: schemas by media type, with an example of the first one."""
    media: dict[str, dict[str, Any]] = {media: {"schema": of} for media, of in content.items()}
    if example is not None:
        next(iter(media.values()))["example"] = example
    return Made(required=required, content=media)


# What models answer, and errors, in each API's format: the fields that all answers have. Providers may send more.

Object = dict[str, Any]  # with fields that are not the gateway's
UnixSeconds = Annotated[int, Meta(description="Unix seconds.")]
Happened = Annotated[str, Meta(description="What happened.")]


class ChatUsage(msgspec.Struct):
    """The tokens of a chat."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatMessage(msgspec.Struct):
    """The answer of a chat."""

    role: Literal["assistant"]
    content: str | UnsetType | None = UNSET
    tool_calls: list[Object] | UnsetType = UNSET


class ChatChoice(msgspec.Struct):
    """One of the answers that were asked for."""

    index: int
    message: ChatMessage
    finish_reason: str | None


class ChatCompletion(msgspec.Struct):
    """OpenAI's chat completion."""

    id: str
    object: Literal["chat.completion"]
    created: UnixSeconds
    model: Annotated[str, Meta(description="The model that was asked for, or what the provider calls it.")]
    choices: list[ChatChoice]
    usage: ChatUsage | UnsetType = UNSET


class CompletionChoice(msgspec.Struct):
    """One of the texts that were asked for."""

    index: int
    text: str
    finish_reason: str | None


class Completion(msgspec.Struct):
    """OpenAI's completion."""

    id: str
    object: Literal["text_completion"]
    choices: list[CompletionChoice]
    created: UnixSeconds | UnsetType = UNSET
    model: str | UnsetType = UNSET
    usage: ChatUsage | UnsetType = UNSET


class TokenUsage(msgspec.Struct):
    """The tokens of a message or a response."""

    input_tokens: int
    output_tokens: int


class Message(msgspec.Struct):
    """Anthropic's message."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[Object]
    stop_reason: str | None
    usage: TokenUsage
    stop_sequence: str | UnsetType | None = UNSET


class Candidate(msgspec.Struct, rename="camel"):
    """One of Google's answers."""

    content: Object | UnsetType = UNSET
    finish_reason: str | UnsetType = UNSET
    index: int | UnsetType = UNSET


class GenerateContentResponse(msgspec.Struct, rename="camel"):
    """Google's answer."""

    candidates: list[Candidate] | UnsetType = UNSET
    prompt_feedback: Object | UnsetType = UNSET
    usage_metadata: Object | UnsetType = UNSET
    model_version: str | UnsetType = UNSET
    response_id: str | UnsetType = UNSET


class Response(msgspec.Struct):
    """OpenAI's response."""

    id: str
    object: Literal["response"]
    status: str
    model: str
    output: list[Object]
    created_at: Annotated[float | UnsetType, Meta(description="Unix seconds.")] = UNSET
    usage: TokenUsage | UnsetType | None = UNSET


class InteractionUsage(msgspec.Struct):
    """The tokens of an interaction."""

    total_input_tokens: int
    total_output_tokens: int
    total_thought_tokens: int | UnsetType = UNSET
    total_cached_tokens: int | UnsetType = UNSET


class Interaction(msgspec.Struct):
    """Google's interaction."""

    id: str
    status: str
    steps: list[Object] | UnsetType = UNSET
    object: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    usage: InteractionUsage | UnsetType | None = UNSET


class Embedding(msgspec.Struct):
    """One vector: numbers, or their bytes in base64."""

    index: int
    embedding: list[float] | str


class EmbeddingUsage(msgspec.Struct):
    """The tokens of what was embedded."""

    prompt_tokens: int
    total_tokens: int


class Embeddings(msgspec.Struct):
    """OpenAI's embeddings."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage | UnsetType = UNSET


class OpenAIError(msgspec.Struct):
    """What went wrong."""

    message: Annotated[str, Meta(description="What happened, and what to do.")]
    type: Annotated[str | None, Meta(description="The kind of error, as OpenAI names them.")]
    param: Annotated[str | None, Meta(description="The field that is at fault, if it is one.")]
    code: Annotated[str | None, Meta(description="The word to decide on.")]


class Error(msgspec.Struct):
    """An error in OpenAI's format. Where a provider says that the request is invalid, its own object is sent."""

    error: OpenAIError


class AnthropicError(msgspec.Struct):
    """What went wrong."""

    type: Annotated[str, Meta(description="As Anthropic names them.")]
    message: Happened


class MessagesError(msgspec.Struct):
    """An error in Anthropic's format."""

    type: Literal["error"]
    error: AnthropicError
    request_id: str | UnsetType | None = UNSET


class GoogleError(msgspec.Struct):
    """What went wrong."""

    code: Annotated[int, Meta(description="The HTTP status.")]
    message: Happened
    status: Annotated[str, Meta(description="As Google names it.")]
    details: list[Object] | UnsetType = UNSET


class GeminiError(msgspec.Struct):
    """An error in Google's format."""

    error: GoogleError


class ErrorWord(msgspec.Struct):
    """What went wrong."""

    code: Annotated[str, Meta(description="The word to decide on, as Google's interactions have it.")]
    message: Happened


class InteractionError(msgspec.Struct):
    """An error in the format of Google's interactions."""

    error: ErrorWord


class BedrockError(msgspec.Struct):
    """An error in the format of Amazon Bedrock, whose kind is in the header ``x-amzn-errortype``."""

    message: Happened


# By the names that the descriptions of endpoints have.
FORMATS: Mapping[str, type[msgspec.Struct]] = {
    each.__name__: each
    for each in (
        *(ChatCompletion, Completion, Message, GenerateContentResponse, Interaction, Response, Embeddings),
        *(Error, MessagesError, GeminiError, InteractionError, BedrockError),
    )
}
