"""Checks of the page's settings."""

from collections.abc import Iterator

from gateway.settings.model import Settings
from gateway.settings.problems import Complaint, Place

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
