"""The typed configuration: one YAML file, variables and options in, ``Settings`` out."""

from gateway.settings.loader import load, load_database_url, locate
from gateway.settings.model import Settings
from gateway.settings.problems import ConfigurationError, Problem

__all__ = ["ConfigurationError", "Problem", "Settings", "load", "load_database_url", "locate"]
