"""The facts taught by refusals in one replica, known to all: in one hash of Redis, with an end for each fact.

The hash has names of models, fields and deployments, kinds of values, the clients that met a fact, and nothing else of
requests. Each client that has met a fact has its own entry: a fact met by two clients holds for all in each replica,
also after a restart. An entry without a client comes from a replica of a version that did not tell the client: it may
be one client's work alone, and two such entries may be of the same client. So such an entry does not count, and holds
only where calls have no clients. Replicas of that version pass over the entries of this version.

One more field of the hash counts the changes: a fact withdrawn and another one added leave the number of fields as it
was. A replica that does not count its changes is noticed by the number of fields.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from gateway.core.log import get_logger
from gateway.core.tasks import end_if_cancelled
from providers import FORGOTTEN, FORMER, LONGEST_NAME, UNREADABLE, Fact, LearntFacts, Met

if TYPE_CHECKING:
    from gateway.topology import Nodes

KEY = "holeshot:learnt"
EVERY_S = 1.0  # between two looks at whether the facts have changed, which are then read
ALL_EVERY = 60  # looks: then the facts are read in any case
MOST = 10_000  # facts to read: Redis has other writers
_DAY_S = 86_400
_STATE = "return {redis.call('HGET', KEYS[1], 'version'), redis.call('HLEN', KEYS[1])}"
# Arguments: the seconds that the hash is kept, an entry's name, and its value; without a value it is withdrawn.
_CHANGE = """
if ARGV[3] then
  redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
else
  redis.call('HDEL', KEYS[1], ARGV[2])
end
redis.call('HINCRBY', KEYS[1], 'version', 1)
redis.call('EXPIRE', KEYS[1], ARGV[1])
"""


class _Value(msgspec.Struct, omit_defaults=True):
    """The end of an entry, and the first time and the reason of meeting the fact; Unix times."""

    until: float
    at: float = 0.0
    why: str = ""


async def shared(store: "Nodes", unix_clock: Callable[[], float]) -> Mapping[str, LearntFacts]:
    """Return the facts learnt by all replicas, by provider."""
    learnt = defaultdict[str, LearntFacts](LearntFacts)
    await SharedFacts(store, learnt.__getitem__, lambda telling: telling.close(), unix_clock=unix_clock).look()
    return learnt


class SharedFacts:
    """Tells the other replicas about facts, and learns from them. ``learnt``: a provider's name → its facts."""

    def __init__(
        self,
        store: "Nodes",
        learnt: Callable[[str], LearntFacts | None],
        start: Callable[[Coroutine[Any, Any, None]], object],
        *,
        unix_clock: Callable[[], float],
    ) -> None:
        """``start`` runs the telling in the background."""
        self._store = store
        self._learnt = learnt
        self._start = start
        self._unix_clock = unix_clock
        self._seen: list[Any] = []  # the hash's version and number of fields, when it was read
        self._is_away = False
        self._telling = asyncio.Lock()  # in order: a fact, and its withdrawal

    def tell(self, provider: str, model: str, fact: Fact, until: float, met: Met) -> None:
        """Tell the others a fact, its end in Unix time (0: it no longer holds), and the clients that have met it."""
        client = met.clients[-1]
        entry = (provider, model, fact) if client == FORMER else (provider, model, fact, client)
        if client == FORGOTTEN:  # the entry outlives the fact, so that all replicas read the entry
            until = met.until
        value = msgspec.json.encode(_Value(until, met.at, met.why)).decode() if until else None
        self._start(self._tell(msgspec.json.encode(entry).decode(), value))

    async def run(self) -> None:
        """Learn from the others until cancelled."""
        looks = 0
        while True:
            await self.look(everything=looks % ALL_EVERY == 0)
            end_if_cancelled()
            looks += 1
            await asyncio.sleep(EVERY_S)

    async def look(self, *, everything: bool = True) -> None:
        """Read the other replicas' facts; unless ``everything`` is wanted, only if they have changed."""
        state = await self._call("EVAL", _STATE, 1, KEY)
        if not isinstance(state, list) or state[1] > MOST or not (everything or state != self._seen):
            return
        raw = await self._call("HGETALL", KEY)
        if raw is None:
            return
        self._seen = state
        pairs = raw.items() if isinstance(raw, dict) else zip(raw[::2], raw[1::2], strict=False)
        entries, ended = [], []
        for name, end in pairs:
            with suppress(*UNREADABLE, ValueError):
                entries.append((name, *_read(name, end)))
        forgotten_at = {
            (provider, model, fact): value.at
            for _, provider, model, fact, client, value in entries
            if client == FORGOTTEN
        }
        for name, provider, model, fact, client, value in entries:
            facts, forgotten = self._learnt(provider), forgotten_at.get((provider, model, fact))
            is_forgotten = forgotten is not None and client != FORGOTTEN and value.at <= forgotten
            if value.until <= self._unix_clock() or is_forgotten:
                ended.append(name)
            elif facts is not None and client == FORGOTTEN:
                facts.drop(model, fact, before=value.at)
            elif facts is not None:
                facts.note(model, fact, client=client, until=value.until, at=value.at, why=value.why[:LONGEST_NAME])
        if ended:
            await self._call("HDEL", KEY, *ended)

    async def _tell(self, name: str, value: str | None) -> None:
        entry = (name,) if value is None else (name, value)
        async with self._telling:
            await self._call("EVAL", _CHANGE, 1, KEY, _DAY_S, *entry)

    async def _call(self, *command: str | int) -> Any:
        try:
            reply = await self._store.call(KEY, command)
        except Exception as error:  # noqa: BLE001 - Redis clients raise many types; calls must not fail
            if not self._is_away:
                # Event deployment.facts_not_shared: Redis does not answer, so each replica learns by itself which
                # fields a model refuses.
                # Do: Make Redis reachable. Calls go on.
                get_logger().warning("deployment.facts_not_shared", error=type(error).__name__)
            self._is_away = True
            return None
        self._is_away = False
        return reply


def _read(name: bytes | str, value: bytes | str) -> tuple[str, str, Fact, str | None, _Value]:
    """Return the parts of an entry, with the client that has met the fact.

    Raises:
        DecodeError, ValueError: the entry is another writer's

    """
    provider, model, fact, *client = msgspec.json.decode(name, type=list[msgspec.Raw])
    texts = msgspec.json.decode(provider, type=str), msgspec.json.decode(model, type=str)
    fact_read = msgspec.json.decode(fact, type=Fact)
    if not client:
        return *texts, fact_read, FORMER, _Value(float(value))
    (who,) = client
    return *texts, fact_read, msgspec.json.decode(who, type=str | None), msgspec.json.decode(value, type=_Value)
