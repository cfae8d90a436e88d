"""The address of a store, with a user and a password that may be renewed during use."""

from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl, urlencode

_OF_LOGIN = frozenset({"username", "password", "sentinel_username", "sentinel_password"})


class Address:
    """A URL. New connections use the current ``url``; a refused connection asks ``is_renewed``."""

    def __init__(self, url: str, read_again: Callable[[], Awaitable[object]] | None = None) -> None:
        """``read_again`` reads the settings, which may set another ``url``, and raises nothing."""
        self.url = url
        self._read_again = read_again

    def __repr__(self) -> str:
        return "Address(***)"

    async def is_renewed(self, refused: str) -> bool:
        """Return whether there is another login than that of ``refused``, a URL with a login that a server refused.

        Without another login, the settings are read again, once.
        """
        if self.url == refused and self._read_again is not None:
            await self._read_again()
        return self.url != refused


def text_of(address: str | Address) -> str:
    """Return the current URL."""
    return address if isinstance(address, str) else address.url


def without_login(url: str) -> str:
    """Return ``url`` without the parts that may be renewed: user and password, also those of its parameters."""
    scheme, _, rest = url.partition("://")
    ends = [at for each in "/?#" if (at := rest.find(each)) >= 0]
    netloc = rest[: min(ends, default=len(rest))]
    path, mark, query = rest[len(netloc) :].partition("?")
    parameters = urlencode([each for each in parse_qsl(query, keep_blank_values=True) if each[0] not in _OF_LOGIN])
    return f"{scheme}://{netloc.rpartition('@')[2]}{path}{mark if parameters else ''}{parameters}"
