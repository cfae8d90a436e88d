"""Converts a LiteLLM proxy's configuration to Holeshot's."""
