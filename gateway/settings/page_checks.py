"""Checks of the page's settings."""

from collections.abc import Iterator

from gateway.settings.model import Settings
from gateway.settings.page import signing_secret
from gateway.settings.problems import Complaint, Place
from gateway.settings.role import Role

_PLACE: Place = ("page", "trusted_header")
# Browsers send these, or proxies that know nothing of who has signed in.
_OTHERS = frozenset({"authorization", "cookie", "forwarded", "host", "origin", "x-api-key", "x-forwarded-for"})
_SHORTEST = 16  # characters of a signing key


def check_page(settings: Settings) -> Iterator[Complaint]:
    """Yield what is wrong with ``page``."""
    if 0 < len(settings.page.signing_key.get_secret_value()) < _SHORTEST:
        yield Complaint(
            ("page", "signing_key"),
            f"is shorter than {_SHORTEST} characters, so it could be guessed: use `openssl rand -hex 32`",
        )
    trusted = settings.page.trusted_header
    if trusted is None:
        return
    if not settings.clients and settings.keys == "file":
        yield Complaint(
            _PLACE,
            "needs clients: without keys everybody who reaches the gateway may do everything; "
            "add clients with `holeshot keys new NAME`, or remove trusted_header",
        )
    if trusted.name.lower() in _OTHERS:
        yield Complaint((*_PLACE, "name"), f"{trusted.name!r} does not say who has signed in: name the proxy's header")
    for index, network in enumerate(trusted.from_):
        if network.prefixlen == 0:
            yield Complaint(
                (*_PLACE, "from", index), f"{network} lets everybody say who they are: list the proxy's own addresses"
            )


def doubtful_page(settings: Settings) -> Iterator[str]:
    """Yield what works but may not be intended: sessions that a hash is enough to make, or that one replica knows."""
    may_sign_in = settings.keys == "database" or any(
        client.role is not Role.CLIENT for client in settings.clients.values()
    )
    if not may_sign_in or signing_secret(settings):
        return
    if settings.database_url.get_secret_value().startswith("sqlite"):
        if settings.redis_url is not None:  # replicas, then: each has a key of its own beside its file
            yield (
                "page.signing_key is not set: replicas with a SQLite file each do not accept each other's sessions of"
                " the page. Set one (`openssl rand -hex 32`), the same in all replicas"
            )
    else:
        yield (
            "page.signing_key is not set, and database_url has no password to use instead: anyone who reads the hash"
            " of an admin's key can sign in to the page. Set one (`openssl rand -hex 32`), the same in all replicas"
        )
