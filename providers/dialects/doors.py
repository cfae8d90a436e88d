"""Clouds that have their makers' own APIs at addresses of their own, which name the model: Vertex AI, and InvokeModel.

Their bodies of Messages name the version of the API, and not the model. The address says whether to stream.
"""

from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from providers.bodies import encoded
from providers.dialects.dialect import Dialect, TokenCounting
from providers.dialects.messages.dialect import MESSAGES
from providers.dialects.wording import Fields, raw_json

# The versions that the clouds' pages name (docs.aws.amazon.com/bedrock/latest/userguide/,
# model-parameters-anthropic-claude-messages.html, and
# docs.cloud.google.com/gemini-enterprise-agent-platform/models/partner-models/claude, read on 2026-11-29). Anthropic's
# SDK 2.14 sends the newest version of Anthropic's own API instead, which takes less.
_AT_VERTEX, _AT_BEDROCK = msgspec.Raw(b'"vertex-2023-10-16"'), msgspec.Raw(b'"bedrock-2023-05-31"')


assert MESSAGES.counting is not None
_COUNTING = MESSAGES.counting


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """How one cloud is asked."""

    messages: Dialect  # Messages as this cloud takes them, under the same name
    paths: Mapping[str, str]  # by API, below the provider's base URL
    whole: Mapping[str, str]  # the same, for an answer that is not streamed
    counted: Callable[[Fields], Fields]  # the fields of a request that counts tokens of Messages
    counting: TokenCounting = _COUNTING  # how a count is asked for: as of all other providers

    def has(self, asked: Dialect) -> bool:
        """Whether requests in ``asked`` are sent in this cloud's Messages."""
        return asked is MESSAGES or asked is self.messages


def _at_vertex(fields: Fields) -> Fields:
    rest = {name: value for name, value in fields.items() if name != "model"}
    return {"anthropic_version": _AT_VERTEX, **rest}


def _at_bedrock(fields: Fields) -> Fields:
    rest = {name: value for name, value in fields.items() if name not in _IN_THE_ADDRESS}
    return {"anthropic_version": _AT_BEDROCK, **rest}


def _to_count_at_vertex(fields: Fields) -> Fields:
    return {"anthropic_version": _AT_VERTEX, **fields}


def _to_count_at_bedrock(fields: Fields) -> Fields:
    """Return a body of InvokeModel within the body that counts. InvokeModel demands a limit; it is not counted."""
    asked = {**_at_bedrock(fields), "max_tokens": _NOT_COUNTED}
    return {"input": raw_json({"invokeModel": {"body": encoded(asked)}})}


_NOT_COUNTED = msgspec.Raw(b"200000")  # more than any budget of thinking, which must be below the limit
_IN_THE_ADDRESS = frozenset({"model", "stream"})

# Addresses: lib/vertex/_client.py and lib/bedrock/_client.py of Anthropic's SDK 2.14 for Python, and for Gemini
# docs.cloud.google.com/vertex-ai/generative-ai/docs/model-reference/inference; read on 2026-11-29.
DOORS: Mapping[str, Door] = {  # by the kind of their providers
    "vertex": Door(
        messages=replace(MESSAGES, requests=replace(MESSAGES.requests, body=_at_vertex)),
        paths={
            "messages": "publishers/anthropic/models/{model}:streamRawPredict",
            "messages/count_tokens": "publishers/anthropic/models/count-tokens:rawPredict",
            "gemini": "publishers/google/models/{model}:streamGenerateContent",
            "models/{model}:countTokens": "publishers/google/models/{model}:countTokens",
        },
        whole={"messages": "publishers/anthropic/models/{model}:rawPredict"},
        counted=_to_count_at_vertex,
    ),
    "invoke": Door(
        messages=replace(
            MESSAGES,
            requests=replace(
                MESSAGES.requests, body=_at_bedrock, vendors=replace(MESSAGES.requests.vendors, header_for=None)
            ),
        ),
        paths={"messages": "model/{model}/invoke-with-response-stream"},
        whole={"messages": "model/{model}/invoke"},
        counted=_to_count_at_bedrock,
    ),
}
