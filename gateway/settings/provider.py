"""The section of a provider: its address, keys and APIs."""

from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from gateway.settings.section import Section
from gateway.settings.timeouts import Timeouts
from providers.catalog import Api, Kind

# What the file may contain before the validator converts it: for the JSON Schema.
_HttpVersion = Literal["auto", "1.1", "2"] | Annotated[float, Field(json_schema_extra={"enum": [1.1, 2]})]


class ProviderSettings(Section):
    """A vendor or server with a base URL and a key. What the preset has may be left out."""

    preset: str | None = None  # the catalog row to start from; default: the row of the provider's own name
    kind: Kind | None = None  # openai_compatible unless the preset says otherwise
    apis: tuple[Api, ...] | None = None  # default: those of its preset
    base_url: str | None = None
    api_key: SecretStr | None = None
    # Instead of api_key: several, each with its own rate limits. A list, or names for the ledger with their keys.
    api_keys: dict[int | str, SecretStr] = {}
    organization: str | None = None  # sent as openai-organization
    headers: dict[str, SecretStr] = {}  # sent with every request
    query: dict[str, str] = {}  # likewise, in the URL: Azure's api-version; not for secrets
    http_version: Literal["auto", "1.1", "2"] = "auto"  # auto: HTTP/2 if TLS negotiates it
    # Its streams (chat, completions) end with [DONE] and no finish reason: they are whole; others have broken off.
    omits_finish_reason: bool = False
    timeouts: Timeouts = Timeouts()

    @property
    def keys(self) -> tuple[SecretStr, ...]:
        """Every key, in the order of the file."""
        return tuple(self.api_keys.values()) or (() if self.api_key is None else (self.api_key,))

    @property
    def key_names(self) -> tuple[str | None, ...]:
        """The operator's names for several keys; None for keys in a list."""
        return tuple(name if isinstance(name, str) else None for name in self.api_keys)

    @field_validator("api_keys", mode="before", json_schema_input_type=list[SecretStr] | dict[str, SecretStr])
    @classmethod
    def _by_place_or_name(cls, value: object) -> object:
        if isinstance(value, list | tuple):
            return dict(enumerate(value))
        if not isinstance(value, dict):
            raise ValueError("must be a list of keys, or a section of names and keys")  # noqa: TRY004 - pydantic's own
        return value

    @model_validator(mode="after")
    def _has_one_list_of_keys(self) -> "ProviderSettings":
        if self.api_key is not None and self.api_keys:
            raise ValueError("has api_key and api_keys: put all keys into api_keys")
        return self

    @field_validator("http_version", mode="before", json_schema_input_type=_HttpVersion)
    @classmethod
    def _as_written(cls, value: object) -> object:
        """Accept the number that YAML makes of it."""
        return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
