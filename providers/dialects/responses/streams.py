"""Translations of streams to and from chat completions."""

from providers.dialects.responses.stream_from_chat import FromChat
from providers.dialects.responses.stream_to_chat import ToChat

__all__ = ["FromChat", "ToChat"]
