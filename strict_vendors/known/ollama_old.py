"""Ollama of an older release, which has neither Responses nor Messages: 404, ``404 page not found``."""

from strict_vendors.known.ollama import Old

VENDOR = Old
