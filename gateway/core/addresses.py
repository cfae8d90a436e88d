"""The address of a store, whose user and password may be renewed while it is used."""

from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl, urlencode

_OF_LOGIN = frozenset({"username", "password", "sentinel_username", "sentinel_password"})


class Address:
    """A URL. New connections go by ``url`` as it is then; who is refused asks ``is_renewed``."""

    def __init__(self, url: str, read_again: Callable[[], Awaitable[object]] | None = None) -> None:
        """``read_again`` reads the settings, which may give this another ``url``; it raises nothing."""
        self.url = url
        self._read_again = read_again

    def __repr__(self) -> str:
        return "Address(***)"

    async def is_renewed(self, refused: str) -> bool:
        """Whether there is another login than that of ``refused``, which a server did not let in.

        Unless it is there already, the settings are read again for it, once.
        """
        if self.url == refused and self._read_again is not None:
            await self._read_again()
        return self.url != refused


def text_of(address: str | Address) -> str:
    """Return the URL as it is now."""
    return address if isinstance(address, str) else address.url


def without_login(url: str) -> str:
    """Return ``url`` without what may be renewed: user and password, also those of its parameters."""
    scheme, _, rest = url.partition("://")
    ends = [at for each in "/?#" if (at := rest.find(each)) >= 0]
    netloc = rest[: min(ends, default=len(rest))]
    path, mark, query = rest[len(netloc) :].partition("?")
    kept = urlencode([each for each in parse_qsl(query, keep_blank_values=True) if each[0] not in _OF_LOGIN])
    return f"{scheme}://{netloc.rpartition('@')[2]}{path}{mark if kept else ''}{kept}"
