"""What models answer, and errors, in each API's format: the fields that all answers have. Providers may send more."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

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


# By the names that the descriptions of endpoints have.
FORMATS: Mapping[str, type[msgspec.Struct]] = {
    each.__name__: each
    for each in (
        *(ChatCompletion, Completion, Message, GenerateContentResponse, Response),
        *(Error, MessagesError, GeminiError),
    )
}
