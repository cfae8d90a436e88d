"""Recent conversations in Redis for the other replicas, encrypted.

Each value is encrypted under a key that is derived from the owner and the id of the answer or item. The value's name in
Redis is derived in the same way, and Redis never has the id: only the client that was given the id can find and read
the value. Redis drops a value after ``ttl_s``. Ids that could be guessed are not shared.
"""

import asyncio
import re
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from os import urandom
from typing import TYPE_CHECKING, Protocol

import msgspec
import structlog

from gateway.core.errors import NamesUnreachable
from providers import UNREADABLE, packed

if TYPE_CHECKING:
    from gateway.topology import Nodes

PREFIX = "holeshot:answer:"
MOST_VALUE_BYTES = 2 * 2**20  # of one value, before it is encrypted
_MOST_TEXT = 4 * (MOST_VALUE_BYTES + 1024) // 3
MOST_LINKS = 8  # of a chain; then the next link has the whole conversation again
# Ids of vendors have 26 random characters or more. The ledger may have the first seven; nobody guesses the rest.
_SECRET = re.compile(r"[a-z]+\d*_.{24,500}", re.DOTALL)  # Google's ids begin with v1_
_NONCE_BYTES = 12
_VALUE_BYTES = 500  # of Redis' memory for a value, in addition to the data
_AT_ONCE = 50  # values that are written together


class AnswerOwner(Protocol):
    """The owner of an answer."""

    @property
    def client(self) -> str | None:
        """The client's name."""

    @property
    def tenant(self) -> str:
        """The digests of the provider keys that the client's requests bring."""

    @property
    def api(self) -> str:
        """The answer's API; empty: Responses."""


class Link(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a conversation: the items after the answer ``parent``; None: from the beginning."""

    items: Sequence[bytes]
    parent: str | None = None
    named: Mapping[str, bytes] = {}  # the answer's items by id
    about: bytes = b""  # the answer without its items; these are the last of ``items``
    names: Sequence[str | None] = ()  # the ids of the answer's items, None for items without one


_link = msgspec.msgpack.Decoder(Link)
_item = msgspec.msgpack.Decoder(bytes)


class SealedAnswers:
    """Values in Redis that live ``ttl_s`` seconds; this process writes at most ``most_bytes``."""

    def __init__(
        self,
        store: "Nodes",
        *,
        ttl_s: Callable[[], float],
        most_bytes: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._store, self._ttl_s, self._most_bytes, self._clock = store, ttl_s, most_bytes, clock
        self._written: deque[tuple[float, int]] = deque()  # the end of each value's life, and its bytes
        self._size = 0

    def may_follow(self, links: int) -> bool:
        """Whether a chain of ``links`` may have one more."""
        return 0 < links < MOST_LINKS

    async def put(self, owner: AnswerOwner, response_id: str, link: Link) -> bool:
        """Write an answer to Redis; return whether other replicas can find the answer now."""
        if _SECRET.fullmatch(response_id) is None:
            return False
        try:
            values = [(response_id, packed(link))]
            values += [(name, packed(data)) for name, data in link.named.items() if _SECRET.fullmatch(name) is not None]
        except MemoryError:
            return False
        size = sum(len(value) + _VALUE_BYTES for _, value in values)
        if len(values[0][1]) > MOST_VALUE_BYTES or not self._has_room(size):
            return False
        ttl_s = max(1, int(self._ttl_s()))
        self._written.append((self._clock() + ttl_s, size))
        self._size += size
        for at in range(0, len(values), _AT_ONCE):
            part = [self._set(owner, name, value, ttl_s) for name, value in values[at : at + _AT_ONCE]]
            if not all(await asyncio.gather(*part)):
                return False
        return True

    async def prolong(self, owner: AnswerOwner, response_id: str) -> None:
        """Have Redis keep an answer for another ``ttl_s``."""
        name, _ = _derived(owner, response_id)
        with suppress(NamesUnreachable):
            await self._call(name, "EXPIRE", name, max(1, int(self._ttl_s())))

    async def chain(self, owner: AnswerOwner, response_id: str) -> Sequence[Link] | None:
        """Return a conversation up to an answer, from the first link; None: unknown, or a link is missing."""
        links: list[Link] = []
        left: str | None = response_id
        while left is not None:
            raw = await self._get(owner, left)
            try:
                link = None if raw is None else _link.decode(raw)
            except UNREADABLE:
                link = None
            if link is None or len(links) >= MOST_LINKS:
                return None
            links.append(link)
            left = link.parent
        return links[::-1]

    async def item(self, owner: AnswerOwner, item_id: str) -> bytes | None:
        """Return an item of an answer; None: unknown."""
        raw = await self._get(owner, item_id)
        try:
            return None if raw is None else _item.decode(raw)
        except UNREADABLE:
            return None

    async def forget(self, owner: AnswerOwner, response_id: str) -> bool:
        """Forget an answer and its items; return whether the answer was known.

        Raises:
            NamesUnreachable: Redis does not answer; other replicas may still find the answer.

        """
        raw = await self._found(owner, response_id)
        if raw is None:
            return False
        try:
            names = [*_link.decode(raw).named, response_id]  # the answer last: its value names the items
        except UNREADABLE:
            names = [response_id]
        for each in names:
            name, _ = _derived(owner, each)
            await self._call(name, "DEL", name)
        return True

    def _has_room(self, size: int) -> bool:
        """Whether this process may write ``size`` more bytes to Redis."""
        now = self._clock()
        while self._written and self._written[0][0] <= now:
            self._size -= self._written.popleft()[1]
        return self._size + size <= self._most_bytes()

    async def _set(self, owner: AnswerOwner, text: str, value: bytes, ttl_s: int) -> bool:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - 5 MB, only with Redis

        name, key = _derived(owner, text)
        nonce = urandom(_NONCE_BYTES)
        sealed = b64encode(nonce + AESGCM(key).encrypt(nonce, value, name.encode())).decode()
        try:
            return await self._call(name, "SET", name, sealed, "EX", ttl_s) is not None
        except NamesUnreachable:
            return False

    async def _get(self, owner: AnswerOwner, text: str) -> bytes | None:
        """Return the value of an id; None: unknown, or Redis does not answer."""
        try:
            return await self._found(owner, text)
        except NamesUnreachable:
            return None

    async def _found(self, owner: AnswerOwner, text: str) -> bytes | None:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - likewise
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - likewise

        if _SECRET.fullmatch(text) is None:
            return None
        name, key = _derived(owner, text)
        reply = await self._call(name, "GETRANGE", name, 0, _MOST_TEXT)
        if not reply or not isinstance(reply, str):
            return None
        try:
            sealed = b64decode(reply, validate=True)
            return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], name.encode())
        except (InvalidTag, ValueError):  # not our value: Redis may have other writers
            return None

    async def _call(self, name: str, *command: str | int) -> object:
        """Return Redis' reply to a command on the key ``name``.

        Raises:
            NamesUnreachable: Redis does not answer.

        """
        try:
            reply: object = await self._store.call(name, command)
        except Exception as error:
            structlog.get_logger().warning("responses.not_shared", error=type(error).__name__)
            raise NamesUnreachable(
                "Redis does not answer, where all replicas find recent answers: try again in a moment",
                headers={"retry-after": "1"},
            ) from error
        return reply


def _derived(owner: AnswerOwner, text: str) -> tuple[str, bytes]:
    """Return the name in Redis and the encryption key for an owner's id; neither reveals the other."""
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - likewise
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415 - likewise

    scope = msgspec.json.encode([owner.client, owner.tenant, *([owner.api] if owner.api else ())])
    derived = HKDF(SHA256(), 64, salt=None, info=b"holeshot answer " + scope).derive(text.encode(errors="replace"))
    return PREFIX + derived[:32].hex(), derived[32:]
