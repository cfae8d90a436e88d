"""A Messages stream as chat chunks, and chat chunks as a Messages stream."""

from providers.dialects.messages.stream_from_chat import FromChat
from providers.dialects.messages.stream_to_chat import ToChat

__all__ = ["FromChat", "ToChat"]
