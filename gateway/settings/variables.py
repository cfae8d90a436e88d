"""Reads settings from environment variables with pydantic-settings."""

from collections.abc import Mapping
from typing import Any, cast

from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsError

from gateway.settings.model import Settings
from gateway.settings.sections import NOT_JSON

__all__ = ["SettingsError", "read_variables"]


def read_variables(variables: Mapping[str, str], prefix: str, level: str) -> dict[str, Any]:
    """Return the values of ``variables``, nested as in the file. ``level`` separates the levels of a name.

    Raises:
        SettingsError: a list or a section is not JSON. The message names the setting, not the value.

    """
    return _Variables(variables, prefix, level)()


class _Variables(EnvSettingsSource):
    """pydantic-settings' source, reading a given mapping instead of the process's environment."""

    def __init__(self, variables: Mapping[str, str], prefix: str, level: str) -> None:
        self._variables = {name.lower(): value for name, value in variables.items()}
        # Only the fields are used. A real ``BaseSettings`` would load pydantic-settings even if no variable is set.
        settings = cast("type[BaseSettings]", Settings)
        super().__init__(settings, env_prefix=prefix, env_nested_delimiter=level)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return self._variables

    def decode_complex_value(self, field_name: str, field: Any, value: Any) -> Any:
        """Return ``value`` decoded, unless the setting takes it undecoded. ``field`` is None for a section's entry."""
        if field is not None and NOT_JSON in field.metadata:
            return value
        return super().decode_complex_value(field_name, field, value)
