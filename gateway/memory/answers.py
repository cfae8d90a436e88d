"""Recent responses and interactions in memory, so that later requests can name them.

Where no provider stores an answer (``store: false``, or a server of chat completions), the client can only continue the
conversation if the gateway knows the conversation. So the items of recent conversations are kept for their client,
bounded in bytes and time: on no disk, in no row and no log, and in Redis only as ``sealed.py`` writes them.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

import msgspec

from gateway.memory.sealed import Link, SealedAnswers
from gateway.overload import SEATED_BYTES
from gateway.settings import ResponsesMemorySettings
from providers import UNREADABLE, aside
from providers.dialects import Recalling, single_items

_MIB = 2**20
MOST_CONVERSATION_BYTES = 8 * _MIB  # a longer answer is not kept
MOST_NAMES = 2_000  # items of an answer that can be named
_TURN_BYTES, _PIECE_BYTES = 1_000, 150  # of memory: for a conversation and for a part, in addition to the data
MOST_SHARING = 64  # answers being written to Redis at a time; further ones stay in this process only
_SWEEPS = 4  # in the lifetime of a conversation

Start = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class AnswerScope(msgspec.Struct, frozen=True):
    """The owner of answers: a client, with the provider keys that its requests bring."""

    client: str | None
    tenant: str = ""
    api: str = ""  # answers of one API are unknown to others; empty: Responses


Said = Sequence[tuple[str | None, bytes]]  # the items of an answer in the form of later requests, each with its id


class _Piece:
    """An item that several conversations share: agents send the whole history again with each request."""

    __slots__ = ("data", "users")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.users = 0


class _Answer(msgspec.Struct, frozen=True):
    """An answer without its items; these are the last items of its conversation."""

    about: bytes = b""  # empty: not kept
    names: Sequence[str | None] = ()  # of its items


class _Turn(msgspec.Struct):
    """A conversation up to an answer."""

    pieces: Sequence[_Piece]
    named: Sequence[tuple[str, bytes]]  # ids and data of the answer's items
    answer: "_Answer"
    until: float  # monotonic seconds
    shared: int = 0  # the length of the conversation's chain of links in Redis; 0: not there
    parent: str | None = None  # the answer before this one in the chain


class _Share:
    """The conversations of one ``AnswerScope``."""

    def __init__(self) -> None:
        self.turns: OrderedDict[str, _Turn] = OrderedDict()  # by the answer's id, the least recently used first
        self.items: dict[str, bytes] = {}  # by id
        self.pieces: dict[bytes, _Piece] = {}


class AnswerMemory:
    """The recent conversations of all clients. ``configure`` applies the settings of a reload."""

    def __init__(
        self,
        settings: ResponsesMemorySettings,
        *,
        clock: Callable[[], float],
        start: Start,
        sealed: SealedAnswers | None = None,
    ) -> None:
        """``start``: runs a write to Redis in the background. ``sealed``: None without Redis."""
        self.size = 0  # bytes
        self._clock, self._start, self._sealed = clock, start, sealed
        self._shares: dict[AnswerScope, _Share] = {}
        self._sizes: dict[str | None, int] = {}  # by client, over all provider keys
        self._sharing = 0
        self._timer: asyncio.TimerHandle | None = None
        self.configure(settings)

    def configure(self, settings: ResponsesMemorySettings) -> None:
        """Apply new settings; conversations that exceed the new bounds are forgotten."""
        self._most_bytes, self._ttl_s = int(settings.max_mb * _MIB), settings.ttl_s
        self._shares_out = settings.redis
        self._make_room()

    @property
    def is_on(self) -> bool:
        """Whether anything is kept."""
        return self._most_bytes > 0

    # For later requests.

    async def conversation(self, scope: AnswerScope, response_id: str) -> Sequence[bytes] | None:
        """Return the items of a conversation up to an answer; None: unknown, or of another client."""
        if not self.is_on:
            return None
        turn = self._known(scope, response_id)
        if turn is None and (links := await self._found(scope, response_id)):
            items = [item for link in links for item in link.items]
            last = links[-1]
            turn = self._put(scope, response_id, items, list(last.named.items()), _Answer(last.about, last.names))
        return None if turn is None else [piece.data for piece in turn.pieces]

    async def answer(self, scope: AnswerScope, response_id: str) -> tuple[bytes, Said] | None:
        """Return an answer without its items, and the items; None: unknown, or of another client."""
        items = await self.conversation(scope, response_id)
        turn = None if items is None else self._known(scope, response_id)
        if items is None or turn is None or not turn.answer.about:
            return None
        names = turn.answer.names
        return turn.answer.about, list(zip(names, items[len(items) - len(names) :], strict=True))

    async def item(self, scope: AnswerScope, item_id: str) -> bytes | None:
        """Return an item of an answer; None: unknown, or of another client."""
        if not self.is_on:
            return None
        share = self._shares.get(scope)
        if share is not None and (data := share.items.get(item_id)) is not None:
            return data
        if self._sealed is None or not self._shares_out:
            return None
        return await self._sealed.item(scope, item_id)

    # For answers that end.

    def keep(
        self,
        scope: AnswerScope,
        response_id: str,
        asked: Iterable[bytes],
        said: Said,
        *,
        follows: str | None = None,
        about: bytes = b"",
    ) -> None:
        """Keep a conversation: the request's items (``asked``), then the answer's items with ids (``said``).

        ``follows``: the answer up to which ``asked`` repeats a conversation; ``about``: the answer without items.
        """
        if not self.is_on:
            return
        items = [*asked, *(data for _, data in said)]
        turn = self._put(scope, response_id, items, said, _Answer(about, tuple(name for name, _ in said)))
        if turn is not None and self._sealed is not None and self._shares_out and self._sharing < MOST_SHARING:
            self._sharing += 1
            self._start(self._tell(self._sealed, scope, response_id, turn, said, follows))

    async def forget(self, scope: AnswerScope, response_id: str) -> bool:
        """Forget an answer, here and in Redis; return whether the answer was known.

        Raises:
            NamesUnreachable: Redis does not answer; only this process has forgotten the answer.

        """
        if not self.is_on:
            return False
        share = self._shares.get(scope)
        was_known = share is not None and response_id in share.turns
        if share is not None and was_known:
            self._drop(scope, share, response_id)
        if self._sealed is not None and self._shares_out:
            was_known = await self._sealed.forget(scope, response_id) or was_known
        return was_known

    def close(self) -> None:
        """Forget all."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._shares.clear()
        self._sizes.clear()
        self.size = 0

    # The conversations of one client share their items, and each item counts once.
    #
    # Not every server's ids are unique: Ollama's are numbers below 1,000,000 (middleware/openai.go of ollama/ollama,
    # read on 2026-11-27). An id that came twice, with different content, is forgotten, so that nobody continues the
    # wrong conversation.

    def _known(self, scope: AnswerScope, response_id: str) -> _Turn | None:
        share = self._shares.get(scope)
        turn = None if share is None else share.turns.get(response_id)
        if share is None or turn is None:
            return None
        now = self._clock()
        if now >= turn.until:
            self._drop(scope, share, response_id)
            return None
        turn.until = now + self._ttl_s
        share.turns.move_to_end(response_id)
        return turn

    def _put(
        self, scope: AnswerScope, response_id: str, items: Sequence[bytes], said: Said, answer: _Answer
    ) -> _Turn | None:
        size = sum(map(len, items))
        if size > min(MOST_CONVERSATION_BYTES, self._most_bytes // 4):
            return None
        share = self._shares.setdefault(scope, _Share())
        if (before := share.turns.get(response_id)) is not None:
            is_same = [piece.data for piece in before.pieces] == list(items)
            self._drop(scope, share, response_id)
            if not is_same:
                return None
            share = self._shares.setdefault(scope, share)
        pieces = []
        for data in items:
            piece = share.pieces.get(data)
            if piece is None:
                piece = share.pieces[data] = _Piece(data)
                self._count(scope, len(data) + _PIECE_BYTES)
            piece.users += 1
            pieces.append(piece)
        named = [(name, share.pieces[data].data) for name, data in said[:MOST_NAMES] if name is not None]
        for name, data in named:
            if share.items.setdefault(name, data) != data:
                del share.items[name]
        turn = share.turns[response_id] = _Turn(tuple(pieces), tuple(named), answer, self._clock() + self._ttl_s)
        self._count(scope, _weight(turn))
        self._make_room()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._ttl_s / _SWEEPS, self._sweep)
        return turn

    def _drop(self, scope: AnswerScope, share: _Share, response_id: str) -> None:
        turn = share.turns.pop(response_id)
        freed = _weight(turn)
        for piece in turn.pieces:
            piece.users -= 1
            if not piece.users:
                del share.pieces[piece.data]
                freed += len(piece.data) + _PIECE_BYTES
        for name, item in turn.named:
            if share.items.get(name) is item:  # the id may be another answer's by now
                del share.items[name]
        self._count(scope, -freed)
        if not share.turns:
            self._shares.pop(scope, None)

    def _count(self, scope: AnswerScope, size: int) -> None:
        client_bytes = self._sizes.get(scope.client, 0) + size
        if client_bytes:
            self._sizes[scope.client] = client_bytes
        else:
            self._sizes.pop(scope.client, None)
        self.size += size

    def _make_room(self) -> None:
        """Forget conversations, the oldest of the client with most bytes, until the rest is within the bound.

        So many conversations of one client displace none of another's. A client's bytes are summed over all provider
        keys: made-up keys bring no more room. Without ``clients`` all programs are one client, as for limits.
        """
        while self.size > self._most_bytes and self._shares:
            client = max(self._sizes, key=self._sizes.__getitem__)
            shares = [(scope, share) for scope, share in self._shares.items() if scope.client == client]
            scope, share = min(shares, key=_last_used)
            self._drop(scope, share, next(iter(share.turns)))

    def _sweep(self) -> None:
        """Forget conversations that were not used for ``ttl_s``."""
        self._timer, now = None, self._clock()
        for scope, share in list(self._shares.items()):
            while share.turns and now >= next(iter(share.turns.values())).until:
                self._drop(scope, share, next(iter(share.turns)))
        if self._shares:
            self._timer = asyncio.get_running_loop().call_later(self._ttl_s / _SWEEPS, self._sweep)

    # Other replicas.

    async def _found(self, scope: AnswerScope, response_id: str) -> Sequence[Link] | None:
        return await self._sealed.chain(scope, response_id) if self._sealed is not None and self._shares_out else None

    async def _tell(  # noqa: PLR0917 - all of one answer
        self,
        sealed: SealedAnswers,
        scope: AnswerScope,
        response_id: str,
        turn: _Turn,
        said: Said,
        follows: str | None,
    ) -> None:
        """Write a conversation to Redis for other replicas; if Redis has the beginning, only the rest."""
        try:
            before = None if follows is None else self._known(scope, follows)
            pieces, parent = turn.pieces, None
            may_follow = before is not None and sealed.may_follow(before.shared)
            if before is not None and may_follow and pieces[: len(before.pieces)] == before.pieces:
                pieces, parent = pieces[len(before.pieces) :], follows
            named = {name: data for name, data in said[:MOST_NAMES] if name is not None}
            answer = turn.answer
            link = Link(
                parent=parent,
                items=[piece.data for piece in pieces],
                named=named,
                about=answer.about,
                names=answer.names,
            )
            if await sealed.put(scope, response_id, link):
                turn.shared, turn.parent = 1 if before is None or parent is None else before.shared + 1, parent
                while before is not None and parent is not None:  # the new link is useless without any of them
                    await sealed.prolong(scope, parent)
                    parent = before.parent
                    before = None if parent is None else self._known(scope, parent)
        finally:
            self._sharing -= 1


def _weight(turn: _Turn) -> int:
    """Return the bytes of a conversation, without its items."""
    return _TURN_BYTES + 8 * len(turn.pieces) + _PIECE_BYTES * len(turn.named) + len(turn.answer.about)


def _last_used(entry: tuple[AnswerScope, _Share]) -> float:
    """Return when the oldest conversation ends; that is the least recently used one, as all have the same lifetime."""
    return next(iter(entry[1].turns.values())).until


# One answer to be remembered, from the request to the end of the call.

LONG_ANSWER_BYTES = 256 * 1024  # longer answers are read in a thread


class Remembering:
    """A request, and the parts of the answer that the next turn needs."""

    def __init__(
        self,
        memory: AnswerMemory,
        scope: AnswerScope,
        prompt: msgspec.Raw | None,
        follows: str | None,
        recalling: Recalling,
    ) -> None:
        """``prompt``: the input; it is copied, as the request forgets the prompt when the answer begins.

        ``follows``: the answer whose conversation the gateway has put before the input. ``recalling``: reads its API.
        """
        self.heard = recalling.heard()
        self._memory, self._scope, self._follows = memory, scope, follows
        size = 0 if prompt is None else len(memoryview(prompt))
        self._asked = recalling.items_of(prompt) if size <= MOST_CONVERSATION_BYTES else None

    @property
    def size(self) -> int:
        """The bytes that are held until the end of the call."""
        return 0 if self._asked is None else len(self._asked)

    @property
    def counted_bytes(self) -> int:
        """The bytes that count in the budget of bodies; the call's seat covers up to ``SEATED_BYTES``."""
        return self.size if self.size > SEATED_BYTES else 0

    async def read(self, body: bytes) -> None:
        """Read an answer that is complete."""
        if len(body) > LONG_ANSWER_BYTES:
            await aside(lambda: self.heard.read(body))
        else:
            self.heard.read(body)

    def keep_soon(self) -> None:
        """Keep the answer when its last bytes have gone out, before the client's next request is read."""
        if self._asked is not None:
            asyncio.get_running_loop().call_soon(self._keep)

    def _keep(self) -> None:
        asked, self._asked, heard = self._asked, None, self.heard
        if asked is None or heard.id is None or heard.is_lost or not heard.is_over:
            return
        try:
            items = single_items(asked)
        except UNREADABLE:
            return
        self._memory.keep(self._scope, heard.id, items, heard.said, follows=self._follows, about=heard.about)
