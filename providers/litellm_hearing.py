"""The parts of a chat request that reach a model behind litellm: fields that litellm accepts and the model supports."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from providers.dialects.wording import Loss

# Fields that a client may set. Litellm's own parameters, such as addresses and credentials, are keywords too: these can
# only be set in the configuration (``extra_body``).
_CHAT_FIELDS = frozenset({
    "audio",
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "modalities",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "reasoning_effort",
    "response_format",
    "seed",
    "stop",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
})  # fmt: skip
_OURS = frozenset({"model", "stream", "stream_options"})  # set by the exchange itself
_UNLISTED = frozenset({"messages", "top_k"})  # supported, but not in litellm's lists
# Fields that do not affect the answer: labels, and those about cost and speed.
_HINTS = frozenset({
    "metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "user",
})  # fmt: skip
# The API's defaults: a field with its default value is not a loss.
_DEFAULTS: Mapping[str, Any] = {
    "frequency_penalty": 0,
    "function_call": "auto",
    "functions": [],
    "logit_bias": {},
    "logprobs": False,
    "metadata": {},
    "modalities": ["text"],
    "n": 1,
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "response_format": {"type": "text"},
    "service_tier": "auto",
    "stop": [],
    "store": False,
    "temperature": 1,
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1,
    "verbosity": "medium",
}
_LONGEST_DEFAULT_BYTES = 32
_MARKER = b'"cache_control"'
_KEEP_MARKERS = frozenset({"anthropic", "bedrock", "databricks", "gemini", "vertex_ai"})
_MOST_MODELS = 1000  # clients may name any; with more of them, the cache is cleared


class Hearing:
    """The fields that the models of one provider support according to litellm, once it is imported."""

    def __init__(self, prefix: str, imported: Callable[[], Any | None]) -> None:
        self._prefix = prefix
        self._imported = imported  # the litellm module, None until it is imported
        self._lists: dict[str, frozenset[str] | None] = {}

    def losses(self, model: str, fields: Mapping[str, msgspec.Raw]) -> tuple[Loss, ...]:
        """Return the losses among ``fields``, in their order."""
        lost = []
        for name, raw in fields.items():
            if name in _OURS or _says_nothing(name, raw):
                continue
            if name not in _CHAT_FIELDS:
                lost.append(Loss(name, "litellm does not support it", hint=name in _HINTS))
            elif not self._takes(model, name):
                lost.append(Loss(name, f"litellm does not support it for {model}", hint=name in _HINTS))
        if self._prefix not in _KEEP_MARKERS and _MARKER in bytes(fields.get("messages", b"")):
            lost.append(Loss("messages[].content[].cache_control", "the provider has no cache markers", hint=True))
        return tuple(lost)

    def spoken(self, model: str, fields: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
        """Return the decoded fields for litellm, without defaults that it would refuse."""
        spoken = {}
        for name, raw in fields.items():
            if name not in _CHAT_FIELDS or bytes(raw) == b"null":
                continue
            listed = self._list(model)
            if listed is None or name in listed or name in _UNLISTED:
                spoken[name] = msgspec.json.decode(raw)
            elif name == "max_completion_tokens" and "max_tokens" in listed:
                spoken["max_tokens"] = msgspec.json.decode(raw)  # its older name
            elif not _says_nothing(name, raw) and name not in _HINTS:
                spoken[name] = msgspec.json.decode(raw)  # litellm refuses it, or drops it if allowed
        return spoken

    def _takes(self, model: str, name: str) -> bool:
        listed = self._list(model)
        if listed is None or name in listed or name in _UNLISTED:
            return True
        return name == "max_completion_tokens" and "max_tokens" in listed

    def _list(self, model: str) -> frozenset[str] | None:
        """Return the names of a model's parameters according to litellm, None if unknown."""
        litellm = self._imported()
        if litellm is None:
            return None
        if model not in self._lists:
            if len(self._lists) >= _MOST_MODELS:
                self._lists.clear()
            try:
                names = litellm.get_supported_openai_params(model, custom_llm_provider=self._prefix)
            except Exception:  # noqa: BLE001  # litellm raises whatever its many modules raise
                names = None
            self._lists[model] = None if names is None else frozenset(names)
        return self._lists[model]


def _says_nothing(name: str, raw: msgspec.Raw) -> bool:
    """Whether a field is null or has its default value."""
    text = bytes(raw)
    if text == b"null":
        return True
    if len(text) > _LONGEST_DEFAULT_BYTES or name not in _DEFAULTS:
        return False
    value, default = msgspec.json.decode(text), _DEFAULTS[name]
    return bool(value == default) and isinstance(value, bool) == isinstance(default, bool)
