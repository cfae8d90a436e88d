"""Converts a LiteLLM proxy's configuration to ours."""
