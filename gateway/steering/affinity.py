"""Affinity: which deployments should still have the beginning of a prompt in their provider's prompt cache.

A provider that has just processed a prompt answers the next prompt with the same beginning faster, and charges less.
So a conversation should go where its last turn went while that cache is warm. If this replica knows of no warm cache,
the prompt's first bytes select the deployment (``rendezvous``).

A cache belongs to an account, and so to one of several keys of a provider: the provider's key ring knows a
conversation by ``conversation_of``.
"""

import json
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from gateway.steering.constants import CACHE_MISSES, CACHE_WARM_S, PREFIX_BYTES, PREFIXES_KEPT
from providers import Price

CachedBytes: TypeAlias = Mapping[str, int]  # deployment → bytes of the prompt that should be in its cache

NOTHING_HELD: CachedBytes = MappingProxyType({})
_NOBODY: frozenset[str] = frozenset()


class Prefix(msgspec.Struct, frozen=True, gc=False):
    """The prefixes of one prompt as hashes: of its first 4 KB, 8 KB and so on, up to its length.

    ``shared`` is another hash of the first 4 KB: 8 bytes, equal in every replica. ``session`` is a hash of the agent's
    session, if the request names one.
    """

    digests: tuple[int, ...]
    shared: bytes | None = None
    session: int | None = None


def prefix_of(
    parts: Iterable[bytes | memoryview | msgspec.Raw], key: str | None, session: str | None = None
) -> Prefix | None:
    """Return the prefixes of the prompt made of ``parts``; None: the prompt is too short for any provider's cache.

    Parts are raw JSON in the order in which providers read them: tools, system prompt, and then the messages, which
    grow. The next turn's array of messages begins with the same bytes except for the closing bracket, so the last byte
    is left out. ``key`` is the client's ``prompt_cache_key``; providers keep a cache for each key.

    Python's hash of bytes is used. Its key changes with each process, so collisions cannot be constructed, and the hash
    is several times faster than a cryptographic one: 16 KB take 6 µs, and BLAKE2 of the first 4 KB another 4.
    """
    head = _head(map(_lasting, parts), PREFIX_BYTES[-1] + 1)
    if len(head) <= PREFIX_BYTES[0]:
        return None
    digest, start, digests = hash(key), 0, []
    for end in PREFIX_BYTES:
        if end >= len(head):
            break
        digest = hash((digest, head[start:end]))
        digests.append(digest)
        start = end
    shared = blake2b(head[: PREFIX_BYTES[0]], digest_size=8)
    if key:
        shared.update(key.encode("utf-8", "surrogatepass"))
    return Prefix(tuple(digests), shared.digest(), None if session is None else hash(("session", key, session)))


def conversation_of(
    before: Iterable[bytes | memoryview | msgspec.Raw],
    turns: bytes | memoryview | msgspec.Raw,
    key: str | None,
    session: str | None = None,
) -> bytes:
    """Return 16 bytes that are the same in every turn of a conversation, in every replica.

    Prefixes have fixed lengths. The digest also tells conversations apart that begin alike and differ after the system
    prompt, so that these are spread over keys. Digested are the parts ``before`` the ``turns``, and
    the turns up to the first that is not an instruction; of turns only texts, as clients move marks of the cache from
    turn to turn. ``key`` is as for ``prefix_of``. Of each part only the first 64 KB count: 64 KB take some 0.1 ms.

    A named ``session`` of an agent counts instead of the first turn: an agent that sums up its conversation begins it
    again, behind the same instructions. Its helpers have other instructions, and so are other conversations.
    """
    digest = blake2b((key or "").encode("utf-8", "surrogatepass"), digest_size=16)
    for part in map(_lasting, before):
        digest.update(memoryview(part)[: PREFIX_BYTES[-1]])
        digest.update(b"\0")
    if session is not None:
        digest.update(session.encode("utf-8", "surrogatepass"))
        digest.update(b"\0")
    opening = _opening(str(memoryview(turns)[: PREFIX_BYTES[-1]], "utf-8", "ignore"))
    for text, instructs in opening:
        if session is not None and not instructs:
            break
        digest.update(text.encode("utf-8", "surrogatepass"))
        digest.update(b"\0")
    return digest.digest()


_INSTRUCTIONS = frozenset({"system", "developer"})  # roles
# The beginning of an instruction; for turns that are too long to be decoded.
_INSTRUCTION = re.compile(r'\{(?:\s*"type"\s*:\s*"message"\s*,)?\s*"role"\s*:\s*"(?:system|developer)"')
# Claude Code's system prompt begins with a note for Anthropic, which drops the note. The note changes with each call.
_BILL = re.compile(rb'\s*\[\s*\{[^{}]{0,64}"x-anthropic-billing-header:[^{}]{0,512}\}')


# Codex gives each item of its input another id in each session (0.171). No model reads such an id, unless the item has
# nothing else.
_NAMED = re.compile(rb'\s*\[\s*\{(?:\s*"type"\s*:\s*"\w+"\s*,)?\s*"id"\s*:\s*"')
_REFERENCE = b'"item_reference"'
_ITEM = re.compile(rb'"id"\s*:\s*"[\w-]{1,128}"\s*,?')


def _lasting(part: bytes | memoryview | msgspec.Raw) -> bytes | memoryview | msgspec.Raw:
    """Return a part of a prompt without what is new in each turn, or in each session with the same beginning."""
    if (bill := _BILL.match(part)) is not None:
        return memoryview(part)[bill.end() :]
    if _NAMED.match(part) is not None:
        head = bytes(memoryview(part)[: PREFIX_BYTES[-1] * 5 // 4])
        return part if _REFERENCE in head else _ITEM.sub(b"", head)
    return part


def _opening(head: str) -> Iterator[tuple[str, bool]]:
    """Yield the texts of the turns up to the first that is not an instruction, each with whether it is one.

    ``head`` may end within a turn.
    """
    at = len(head) - len(head.lstrip(_BETWEEN))
    while at < len(head):
        try:
            turn, end = _JSON.raw_decode(head, at)
        except (ValueError, RecursionError):
            yield head[at:], _INSTRUCTION.match(head, at) is not None  # the text is longer
            return
        instructs = isinstance(turn, dict) and turn.get("role") in _INSTRUCTIONS
        yield "\n".join(_texts_of(turn)) or head[at:end], instructs
        if not instructs:
            return
        rest = head[end:]
        at = end + len(rest) - len(rest.lstrip(_BETWEEN))


_BETWEEN = "[, \t\r\n"
_JSON = json.JSONDecoder()


def _texts_of(turn: object) -> Iterator[str]:
    """Yield the texts of a turn, or of a part of one, in any API's form."""
    if isinstance(turn, str):
        yield turn
    elif isinstance(turn, list):
        for each in turn:
            yield from _texts_of(each)
    elif isinstance(turn, dict):
        yield from _texts_of(next((turn[name] for name in ("content", "parts", "text") if name in turn), None))


def _head(parts: Iterable[bytes | memoryview | msgspec.Raw], size: int) -> bytes:
    """Return the first ``size`` bytes of ``parts``; the rest is not copied."""
    pieces: list[memoryview] = []
    for part in parts:
        piece = memoryview(part)[:size]
        pieces.append(piece)
        size -= len(piece)
        if not size:
            break
    return b"".join(pieces)


_TOKEN_BYTES = 4  # bytes of a token, as ``PREFIX_BYTES`` assumes


class _Use(msgspec.Struct):
    """The last use of a prefix at one deployment."""

    at_s: float
    misses: int  # in a row: a warm cache was expected, and the provider reported no hit
    tokens: int | None = None  # of the whole prompt


_NO_USES: Mapping[str, _Use] = MappingProxyType({})
_ASKED = "\0asked"  # suffix of a model's name: entries of deployments that were asked, not of those that answered


class Affinity:
    """The expected contents of the prompt caches, from this replica's answers. Times are of any one monotonic clock.

    The 20,000 prefixes used last are kept, for five minutes. A prefix belongs to a model, as the same request may be
    sent upstream differently for another model.
    """

    def __init__(self) -> None:
        self._uses: OrderedDict[tuple[str, int], dict[str, _Use]] = OrderedDict()  # the last used at the end
        self._cachers: set[str] = set()  # deployments that have reported cached tokens

    def __len__(self) -> int:
        return len(self._uses)

    def served(
        self,
        model: str,
        prefix: Prefix,
        deployment: str,
        cached_tokens: int | None,
        now_s: float,
        *,
        prompt_tokens: int | None = None,
    ) -> None:
        """Record an answer: ``cached_tokens`` of its prompt were cached; None if the provider does not report it.

        A hit renews an entry. A prefix that missed twice in a row when it should have been warm is no longer expected
        there: some providers cache only on request.
        """
        if cached_tokens:
            self._cachers.add(deployment)
        for digest in reversed(prefix.digests):  # the shortest prefix last, so that it is dropped last
            uses = self._uses.setdefault((model, digest), {})
            use = uses.get(deployment)
            misses = 0
            if use is not None and now_s - use.at_s < CACHE_WARM_S and not cached_tokens:
                misses = use.misses + (cached_tokens is not None)
            uses[deployment] = _Use(now_s, misses, prompt_tokens)
            self._uses.move_to_end((model, digest))
        if prefix.session is not None:
            self._uses[model, prefix.session] = {deployment: _Use(now_s, 0)}
            self._uses.move_to_end((model, prefix.session))
        self._forget(now_s)

    def held(self, model: str, prefix: Prefix, prices: Mapping[str, Price] | None, now_s: float) -> CachedBytes:
        """Return the deployments whose cache should contain part of the prompt, if that saves something.

        A cache saves something if the price of cached input is known to be lower, or if cached tokens were reported.
        """
        bytes_by_name: dict[str, int] = {}
        for digest, size in zip(prefix.digests, PREFIX_BYTES, strict=False):
            uses = self._uses.get((model, digest))
            if uses is None:
                break  # a deployment that has the longer prefix has the shorter ones too
            for name, use in uses.items():
                if now_s - use.at_s < CACHE_WARM_S and use.misses < CACHE_MISSES and self.saves(name, prices):
                    bytes_by_name[name] = size
        return bytes_by_name

    def asked(self, model: str, prefix: Prefix, deployments: Iterable[str], now_s: float) -> None:
        """Note the deployments that were asked a prompt, answered or not: the caches of all of them may have it."""
        beginnings = msgspec.structs.replace(prefix, session=None)  # who answers a session is for ``served`` to say
        for deployment in deployments:
            self.served(f"{model}{_ASKED}", beginnings, deployment, None, now_s)

    def known_bytes(self, model: str, prefix: Prefix, now_s: float) -> Mapping[str, int]:
        """Return the deployments asked the prompt's beginning within the life of a cache, and how many bytes of it."""
        bytes_by_name: dict[str, int] = {}
        for digest, size in zip(prefix.digests, PREFIX_BYTES, strict=False):
            uses = self._uses.get((f"{model}{_ASKED}", digest), _NO_USES)
            bytes_by_name.update({name: size for name, use in uses.items() if now_s - use.at_s < CACHE_WARM_S})
        return bytes_by_name

    def last_of(self, model: str, prefix: Prefix) -> str | None:
        """Return the deployment that answered the last call of the same session; None if that is not known."""
        uses = None if prefix.session is None else self._uses.get((model, prefix.session))
        return None if uses is None else next(iter(uses))

    def cached_tokens(self, model: str, prefix: Prefix, held: CachedBytes, prompt_tokens: int) -> Mapping[str, int]:
        """Return how many tokens of a prompt each deployment in ``held`` should have in its cache.

        The number is that of the last prompt with this beginning, as a conversation grows at its end. It is at least
        the length of the known beginning, and less than that of the next longer beginning, which differs. For example,
        the last prompt had 3,000 tokens, and shares 8 KB with this one, but not 16 KB: 3,000 tokens are in the cache.
        """
        return {
            name: min(prompt_tokens, self._tokens(model, prefix, PREFIX_BYTES.index(size), name))
            for name, size in held.items()
        }

    def _tokens(self, model: str, prefix: Prefix, place: int, deployment: str) -> int:
        least = PREFIX_BYTES[place] // _TOKEN_BYTES
        use = self._uses[model, prefix.digests[place]][deployment]
        if use.tokens is None:
            return least
        if place + 1 < len(prefix.digests):
            return max(least, min(use.tokens, PREFIX_BYTES[place + 1] // _TOKEN_BYTES))
        return max(least, use.tokens)

    def saves(self, deployment: str, prices: Mapping[str, Price] | None) -> bool:
        """Whether the cache of ``deployment`` is known to save something."""
        if deployment in self._cachers:
            return True
        price = prices.get(deployment) if prices else None
        return price is not None and price.cached_input_usd is not None and price.cached_input_usd < price.input_usd

    def misses(self, model: str, prefix: Prefix, now_s: float) -> frozenset[str]:
        """Return the deployments where the shortest prefix should have been warm lately, but missed."""
        uses = self._uses.get((model, prefix.digests[0]))
        if uses is None:
            return _NOBODY
        return frozenset(
            [name for name, use in uses.items() if now_s - use.at_s < CACHE_WARM_S and use.misses >= CACHE_MISSES]
        )

    def keep(self, deployments: set[str]) -> None:
        """Forget all other deployments."""
        self._cachers &= deployments

    def _forget(self, now_s: float) -> None:
        """Drop prefixes that are cold, and the least recently used if there are too many."""
        while self._uses:
            oldest = next(iter(self._uses))
            used_s = max(use.at_s for use in self._uses[oldest].values())
            if len(self._uses) <= PREFIXES_KEPT and now_s - used_s < CACHE_WARM_S:
                return
            del self._uses[oldest]
