"""Answers to and from chat completions, event by event."""

from providers.dialects.responses.stream_from_chat import FromChat
from providers.dialects.responses.stream_to_chat import ToChat

__all__ = ["FromChat", "ToChat"]
