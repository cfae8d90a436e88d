"""A key: its text, which only its owner has, and what is stored of it."""

import base64
import hashlib
import re
import secrets
from collections.abc import Callable

import msgspec

from gateway.errors import InvalidRequest
from providers.redaction import redact

PREFIX = "hs-"
_RANDOM_BYTES = 32
_HINT_CHARS = 4
_LONGEST_NAME = 100
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class NewKey(msgspec.Struct, frozen=True):
    """A key that was just made. ``text`` is shown once, and stored nowhere."""

    text: str
    sha256: str  # 64 hexadecimal digits
    hint: str  # its last characters, by which its owner finds it in a list: 24 bits of 256

    def __repr__(self) -> str:
        """Show it without the key."""
        return f"NewKey(hint={self.hint!r})"


def new_key(random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> NewKey:
    """Return a key of 256 random bits: nobody can guess it, so its SHA-256 needs neither salt nor many rounds."""
    text = PREFIX + base64.urlsafe_b64encode(random_bytes(_RANDOM_BYTES)).rstrip(b"=").decode()
    return NewKey(text, hashlib.sha256(text.encode()).hexdigest(), text[-_HINT_CHARS:])


def check_name(name: object) -> str:
    """Return ``name`` if it can be a client's.

    Raises:
        InvalidRequest: it cannot.

    """
    if name is None:
        raise InvalidRequest("name: is missing", param="name")
    if isinstance(name, str) and redact(name) != name:
        raise InvalidRequest("name: this looks like a key; names are not secret, so take another one", param="name")
    if not isinstance(name, str) or not is_name(name):
        shown = f"{name[:_LONGEST_NAME]!r}" if isinstance(name, str) else "name: this"
        raise InvalidRequest(
            f"{shown} is not a valid client name: use letters, digits, dots, dashes and underscores,"
            f" at most {_LONGEST_NAME}",
            param="name",
        )
    return name


def is_name(name: str) -> bool:
    """Whether ``name`` can be that of a client in the database."""
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None
