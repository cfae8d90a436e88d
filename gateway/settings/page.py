"""The settings of the page, on which operators watch the gateway."""

from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, IPvAnyNetwork, SecretStr

from gateway.settings.role import Role
from gateway.settings.section import Section

if TYPE_CHECKING:
    from gateway.settings.model import Settings


class TrustedHeader(Section):
    """A header in which a proxy names the person who has signed in there. It must replace what browsers send."""

    name: Annotated[str, Field(pattern="^[A-Za-z0-9-]+$")]
    from_: Annotated[tuple[IPvAnyNetwork, ...], Field(alias="from", min_length=1)]  # the proxy's own addresses
    role: Literal[Role.VIEWER, Role.ADMIN] = Role.VIEWER  # of everybody who comes that way


class PageSettings(Section):
    """Who may look at the page, besides those with the key of an admin or a viewer."""

    trusted_header: TrustedHeader | None = None
    # Sessions are signed with a key made of the hash of the visitor's key and this, the same in all replicas. Default:
    # the password of the database, with SQLite a random key in a file beside it: reading hashes is not enough.
    signing_key: SecretStr = SecretStr("")


def signing_secret(settings: "Settings") -> str:
    """Return what is mixed into the signatures of sessions; empty if there is neither a signing key nor a password."""
    secret = settings.page.signing_key.get_secret_value()
    return secret or urlsplit(settings.database_url.get_secret_value()).password or ""
