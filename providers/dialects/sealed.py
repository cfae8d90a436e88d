"""Seals reasoning that only one account can read, for clients of another API, and opens it when they send it back.

The gateway stores nothing. A sealed text names its account, by a digest, and only a gateway with the key can have made
the text.
"""

import base64
import hashlib
import hmac
import re
from functools import cached_property

from providers.dialects.wording import OURS, SEALED, SEALED_MARK, blocks_within, raw_json

_CONTEXT = b"holeshot: reasoning\0"  # the same secret has other uses
_WHOSE_BYTES, _MAC_BYTES = 9, 18
_FORM = re.compile(r"([\w-]{12})\.(\d{1,4})(t?)\.([\w-]{24})\.(.+)", re.ASCII | re.DOTALL)
_IN_GEMINI = re.compile(OURS + rb"(?:[\w+/=-]|\\/)*", re.ASCII)
_WHOSE = re.compile(SEALED_MARK + rb"([\w-]{12})\.", re.ASCII)


class ThoughtPlace:
    """Where reasoning stood in an answer: behind how many calls, and whether behind a text."""

    __slots__ = ("behind_text", "calls")

    def __init__(self, calls: int = 0, *, behind_text: bool = False) -> None:
        self.calls, self.behind_text = calls, behind_text


class Seal:
    """What one account of a vendor may get back. All replicas have the same ``secret``, also after a restart."""

    def __init__(self, secret: bytes, account: str) -> None:
        self._secret, self._account = secret, account
        self._key = hashlib.sha256(_CONTEXT + secret).digest()

    def of(self, account: str) -> "Seal":
        """Return the seal of another ``account`` at the same vendor."""
        return Seal(self._secret, f"{self._account}\0{account}")

    @cached_property
    def whose(self) -> str:
        """The digest of this account, by which a sealed text names it."""
        return self._digest(b"account\0" + self._account.encode(), _WHOSE_BYTES)

    def closed(self, text: str, place: ThoughtPlace) -> str:
        """Return ``text``, which stood at ``place``, sealed."""
        said = f"{place.calls}{'t' if place.behind_text else ''}"
        return f"{SEALED}:{self.whose}.{said}.{self._mac(said, text)}.{text}"

    def opened(self, sealed: str) -> tuple[str, ThoughtPlace] | None:
        """Return what was sealed, and its place; None: this was not sealed here, or was sealed for another account."""
        found = _FORM.fullmatch(sealed.removeprefix(f"{SEALED}:"))
        if found is None or not hmac.compare_digest(found[1], self.whose):
            return None
        calls, behind, mac, text = found.group(2, 3, 4, 5)
        if not hmac.compare_digest(mac, self._mac(calls + behind, text)):
            return None
        return text, ThoughtPlace(int(calls), behind_text=bool(behind))

    def _mac(self, place: str, text: str) -> str:
        return self._digest(f"text\0{self._account}\0{place}\0{text}".encode(errors="surrogatepass"), _MAC_BYTES)

    def _digest(self, said: bytes, size: int) -> str:
        return base64.urlsafe_b64encode(hmac.digest(self._key, said, "sha256")[:size]).decode()


def accounts_in(prompt: bytes) -> list[str]:
    """Return the accounts whose reasoning is sealed in ``prompt``, by their ``Seal.whose``, in order."""
    found = _WHOSE.findall(prompt)
    for each in _IN_GEMINI.findall(prompt) if OURS in prompt else ():
        found += _WHOSE.findall(bytes(raw_json(blocks_within(each.replace(b"\\/", b"/").decode()))))
    return [each.decode() for each in found]
