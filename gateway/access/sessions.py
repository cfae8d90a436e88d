"""Sessions of the page: a cookie that is valid for twelve hours, for an operator's key or a sign-in at a provider.

The cookie of a key is ``NAME.END.SIGNATURE``: a name made from the key, the end in seconds since 1970, and a signature
by a key derived from the hash of the visitor's key. Nothing is stored. So the cookie is valid at every worker and
replica that knows the visitor's key, and invalid as soon as the visitor's key is replaced, revoked or expired.

The cookie of a person is ``ROLE.NAME.END.SIGNATURE``, signed by a key derived from the settings of the sign-in: a
change of these settings ends the cookie. A person who sees only their own calls has no role: the cookie is ``own.NAME
AND USER.END.SIGNATURE``.
"""

import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gateway.core.reports import SoleUser
from gateway.keys import IssuedKey, KeyTable
from gateway.settings import ClientRole, Settings, signing_secret
from providers import encoded

START, BACK = "sign-in", "signed-in"  # the paths of signing in to the page, below /api
NAME = "holeshot-session"
LIFETIME_S = 12 * 3600
OWN_LIFETIME_S = 3600  # at most, for people who see only their own calls: the sign-in says how long it is valid
_COOKIE = re.compile(r"([\w-]{16})\.([0-9]{1,11})\.[\w-]{43}", re.ASCII)
_LONGEST = 100  # characters
PERSON = "holeshot-person"
_LONGEST_PERSON = 3500  # a name of a hundred characters, each of four bytes, and the names of a client and a team
_PERSON = re.compile(
    r"(?P<signed>(?P<role>viewer|operator|admin)\.(?P<said>[\w-]{1,540})\.(?P<ends>[0-9]{1,11}))\.[\w-]{43}", re.ASCII
)
_OWN = re.compile(r"(?P<signed>own\.(?P<said>[\w-]{1,3400})\.(?P<ends>[0-9]{1,11}))\.[\w-]{43}", re.ASCII)
_own = msgspec.json.Decoder(tuple[str, SoleUser])


class Sessions:
    """Makes cookies of keys, and finds the keys of cookies."""

    def __init__(self, table: KeyTable[Any], unix_clock: Callable[[], float]) -> None:
        self._table = table
        self._unix_clock = unix_clock
        self._seen: tuple[Mapping[bytes, IssuedKey[Any]], bytes] | None = None  # keys and secret of ``_digests``
        self._digests: Mapping[str, bytes] = {}  # by the key's name in cookies

    def made(self, digest: bytes, secret: bytes) -> str:
        """Return the cookie's value for the key with this digest."""
        ends_at = int(self._unix_clock()) + LIFETIME_S
        signer = _signer(digest, secret)
        return _signed(signer, f"{_name(signer)}.{ends_at}")

    def digest(self, cookies: Sequence[str], secret: bytes) -> bytes | None:
        """Return the digest of the key with which one of ``cookies`` was made; None if no cookie is valid.

        Pages on other paths or ports may have set cookies of the same name. All cookies of the request are tried, so
        that a foreign one does not lock visitors out; most are rejected by their form.
        """
        for cookie in cookies:
            match = _COOKIE.fullmatch(cookie)
            if match is None:
                continue
            digest = self._named(secret).get(match[1])
            if digest is None:
                continue
            right = _signed(_signer(digest, secret), f"{match[1]}.{match[2]}")
            if hmac.compare_digest(right.encode(), cookie.encode()) and self._unix_clock() < int(match[2]):
                return digest
        return None

    def _named(self, secret: bytes) -> Mapping[str, bytes]:
        """Return the digests of operators' keys by the keys' names in cookies; rebuilt when the table has changed."""
        row = self._table.known
        if self._seen is None or self._seen[0] is not row or self._seen[1] != secret:
            operators = (
                digest
                for digest, each in row.items()
                if each.client is None or each.client.role is not ClientRole.CLIENT
            )
            self._digests = {_name(_signer(digest, secret)): digest for digest in operators}
            self._seen = row, secret
        return self._digests


def made_for(name: str, role: ClientRole, key: bytes, unix_s: float) -> str:
    """Return the cookie's value for a person who has signed in with this role; ``key`` signs the cookie."""
    return _signed(key, f"{role}.{_text(name.encode())}.{int(unix_s) + LIFETIME_S}")


def person_of(cookies: Sequence[str], key: bytes, unix_s: float) -> tuple[str, ClientRole] | None:
    """Return the name and the role of the person for whom one of ``cookies`` was made; None if none is valid."""
    match = _valid(_PERSON, cookies, key, unix_s)
    return None if match is None else (_raw(match["said"]).decode(), ClientRole(match["role"]))


def made_for_own(name: str, own: SoleUser, key: bytes, unix_s: float, ends_at: float) -> str:
    """Return the cookie's value for a person who has signed in to see their own calls; ``key`` signs the cookie.

    ``ends_at``: the end of the provider's token in seconds since 1970; after that the provider must be asked again.
    """
    return _signed(key, f"own.{_text(encoded((name, own)))}.{int(min(unix_s + OWN_LIFETIME_S, ends_at))}")


def own_of(cookies: Sequence[str], key: bytes, unix_s: float) -> tuple[str, SoleUser] | None:
    """Return the name and the user of a person who sees their own calls, by the first valid cookie; else None."""
    match = _valid(_OWN, cookies, key, unix_s)
    return None if match is None else _own.decode(_raw(match["said"]))


def _valid(pattern: re.Pattern[str], cookies: Sequence[str], key: bytes, unix_s: float) -> re.Match[str] | None:
    """Return the match of the first of ``cookies`` in the form of ``pattern``, signed by ``key`` and not ended."""
    for cookie in cookies:
        match = pattern.fullmatch(cookie)
        if (
            match is not None
            and hmac.compare_digest(_signed(key, match["signed"]), cookie)
            and unix_s < int(match["ends"])
        ):
            return match
    return None


def presented(headers: Sequence[str], name: str = NAME) -> list[str]:
    """Return the values of the gateway's cookie ``name`` in a request's ``cookie`` headers."""
    return list(_values(headers, name, _LONGEST if name == NAME else _LONGEST_PERSON))


def secret_of(settings: Settings, own_key: str) -> bytes:
    """Return the secret of the signatures: ``page.signing_key``, else the password of the database.

    Else ``own_key``, from the file beside a SQLite database. If ``own_key`` is empty too, a reader of the hash of an
    operator's key can make a session from the hash.
    """
    return (signing_secret(settings) or own_key).encode()


def _values(headers: Sequence[str], wanted: str, longest: int) -> Iterator[str]:
    for header in headers:
        for pair in header.split(";"):
            name, _, value = pair.partition("=")
            if name.strip() == wanted and len(value) <= longest:
                yield value.strip()


def _signer(digest: bytes, secret: bytes) -> bytes:
    return hmac.digest(digest, b"holeshot session" + secret, "sha256")


def _name(signer: bytes) -> str:
    """Return the name of a key in cookies: 96 bits, from which neither the key nor its hash can be computed."""
    return _text(hmac.digest(signer, b"name", "sha256")[:12])


def _signed(signer: bytes, text: str) -> str:
    return f"{text}.{_text(hmac.digest(signer, b'says ' + text.encode(), 'sha256'))}"


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _raw(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
