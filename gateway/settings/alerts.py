"""The settings of alerts: when an operator should know, and where messages go."""

import base64
import binascii
from enum import StrEnum
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from gateway.settings.section import Seconds, Section, Share

PREFIX = "whsec_"
LEAST_BYTES, MOST_BYTES = 24, 64  # of a secret, as the Standard Webhooks specification has it
_MAKE_ONE = "make one with: echo whsec_$(openssl rand -base64 32)"


class Format(StrEnum):
    """How a message is written."""

    JSON = "json"
    SLACK = "slack"  # also Mattermost, Rocket.Chat and others that take Slack's incoming webhooks


class WebhookSettings(Section):
    """Where messages are sent. Both the address and the secret are kept secret: a chat's address is a key."""

    url: SecretStr
    secret: SecretStr | None = None  # signs each message; needed unless the format is slack, which verifies nothing
    format: Format = Format.JSON
    tickets: bool = True  # false: only what needs a person now

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, value: SecretStr) -> SecretStr:
        try:
            parts = urlsplit(value.get_secret_value())
            usable = (
                parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
            )
        except ValueError:
            usable = False
        if not usable:
            raise ValueError("must be a URL that begins with https:// or http://")
        return value

    @field_validator("secret")
    @classmethod
    def _is_a_good_secret(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not LEAST_BYTES <= len(key_of(value)) <= MOST_BYTES:
            raise ValueError(f"must be {LEAST_BYTES} to {MOST_BYTES} bytes in base64, after {PREFIX}: {_MAKE_ONE}")
        return value

    @model_validator(mode="after")
    def _is_signed(self) -> Self:
        if self.secret is None and self.format is Format.JSON:
            raise ValueError(f"needs a secret, so that the receiver knows who sends: {_MAKE_ONE}")
        return self


class AlertSettings(Section):
    """When there is an alert. Each is a line in the log and a row in `alerts`, and goes to every webhook."""

    enabled: bool = True
    model_out_s: Annotated[float, Field(ge=0)] = 30.0  # no deployment of a model can answer for so long
    deployment_out_s: Annotated[float, Field(ge=0)] = 300.0  # one deployment is out for so long
    ledger_behind_s: Seconds = 300.0  # a row waits for the database for so long
    spending_share: Share = 0.8  # a client has spent this share of its usd_per_day or usd_per_month
    usd_per_day: Annotated[float, Field(gt=0)] | None = None  # all clients together, in a UTC day
    usd_per_month: Annotated[float, Field(gt=0)] | None = None
    # Bad calls within the long window, so that the few calls of a night raise no alert.
    burn_least_bad: Annotated[int, Field(ge=1)] = 10
    resolve_after_s: Seconds = 300.0  # an alert ends when nothing of it was seen for so long
    webhooks: dict[str, WebhookSettings] = {}


def key_of(secret: SecretStr) -> bytes:
    """Return the bytes with which messages are signed; empty if it is not base64."""
    try:
        return base64.b64decode(secret.get_secret_value().removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return b""
