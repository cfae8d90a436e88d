"""A LiteLLM proxy's configuration, read as one of ours."""

from gateway.settings.litellm_config.conversion import Converted, convert

__all__ = ["Converted", "convert"]
