"""Holeshot, an OpenAI-compatible gateway that races LLM providers: the command. No Python interface is public."""
