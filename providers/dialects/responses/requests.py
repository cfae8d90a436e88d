"""Translations of requests to and from chat completions."""

from providers.dialects.responses.request_from_chat import from_chat
from providers.dialects.responses.request_to_chat import to_chat

__all__ = ["from_chat", "to_chat"]
