"""Converts a LiteLLM proxy's configuration to ours."""

from gateway.settings.litellm_config.conversion import Converted, convert

__all__ = ["Converted", "convert"]
