"""The typed configuration: from a YAML file, environment variables and options to ``Settings``."""

from gateway.settings.document import ConfigurationError, Problem
from gateway.settings.loader import load, load_database_url, locate
from gateway.settings.model import Settings

__all__ = ["ConfigurationError", "Problem", "Settings", "load", "load_database_url", "locate"]
