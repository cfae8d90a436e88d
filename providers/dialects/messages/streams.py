"""Translations of streams to and from chat completions."""

from providers.dialects.messages.stream_from_chat import FromChat
from providers.dialects.messages.stream_to_chat import ToChat

__all__ = ["FromChat", "ToChat"]
