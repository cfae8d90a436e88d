"""Holeshot: an OpenAI-compatible gateway that races LLM providers."""

__version__ = "0.1.0"
