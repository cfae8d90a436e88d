"""Delays the answers to wrong keys that come from an address which guesses. A good key is never delayed.

Nobody finds one of our own keys, which have 256 random bits; the delay makes trying slow, whatever keys an operator has
chosen. It does not help against somebody with many addresses, nor against one who does not wait for the answer.
"""

import asyncio
from collections import OrderedDict
from contextlib import suppress

import msgspec

from gateway.ingress.addresses import counted_as, read_address

FREE = 5  # wrong keys that are answered at once: somebody who mistypes, a program that is started again
FORGOTTEN_S = 12.0  # for one of them, so FREE a minute are never delayed
FIRST_S = 0.25  # doubled for each further one
LONGEST_S = 5.0  # less than the time-out of any client
_MOST = FREE + 6.0  # counted, so that an address is forgotten two minutes after its last one
ADDRESSES = 4096  # remembered, about 200 bytes each; with more of them a guesser has FREE tries from each anyway
WAITING = 256  # answers at a time
WAITING_PER_ADDRESS = 16  # so that one address does not take the places of all


class _Guesser(msgspec.Struct):
    """The wrong keys of one address: how many are not forgotten, and how many answers are waiting."""

    wrong: float = 0.0
    at_s: float = 0.0
    waiting: int = 0

    def wrong_at(self, now_s: float) -> float:
        return max(0.0, self.wrong - (now_s - self.at_s) / FORGOTTEN_S)


class WrongKeys:
    """Counts wrong keys by address (IPv6: by /64), and holds back the answers to those beyond the first few.

    ``waiting`` answers are held back now, ``delayed`` have been, ``at_once`` are those for which there was no place.
    Memory and places are bounded. Each process counts for itself.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self.delayed = 0
        self.at_once = 0
        self._guessers: OrderedDict[bytes, _Guesser] = OrderedDict()  # the latest last
        self._released = asyncio.Event()

    def guessing(self, now_s: float) -> int:
        """Return from how many addresses the next wrong key would be answered late; ``now_s`` is the loop's clock."""
        return sum(guesser.wrong_at(now_s) > FREE - 1 for guesser in self._guessers.values())

    async def hold(self, peer: str | None) -> bool:
        """Count a wrong key from ``peer``, and wait as long as its answer must.

        Returns False if too many answers are waiting already. The answer is then sent at once, and its connection
        closed: a guesser has to pay for a new one each time, and holds nothing here, while a client with an old key
        still reads why it is refused.
        """
        guesser = self._guesser(peer)
        now_s = asyncio.get_running_loop().time()
        guesser.wrong, guesser.at_s = min(_MOST, guesser.wrong_at(now_s) + 1.0), now_s
        if guesser.wrong <= FREE or self._released.is_set():
            return True
        if self.waiting >= WAITING or guesser.waiting >= WAITING_PER_ADDRESS:
            self.at_once += 1
            return False
        self.waiting += 1
        guesser.waiting += 1
        self.delayed += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(delay_s(guesser.wrong)):
                    await self._released.wait()
        finally:  # also if the client has hung up
            self.waiting -= 1
            guesser.waiting -= 1
        return True

    def release(self) -> None:
        """Answer at once from now on, also those that wait: the gateway is stopping."""
        self._released.set()

    def _guesser(self, peer: str | None) -> _Guesser:
        address = None if peer is None else read_address(peer)
        key = b"" if address is None else counted_as(address)  # those without an address are counted together
        guesser = self._guessers.get(key)
        if guesser is None:
            guesser = self._guessers[key] = _Guesser()
            if len(self._guessers) > ADDRESSES:
                self._guessers.popitem(last=False)
        else:
            self._guessers.move_to_end(key)
        return guesser


def delay_s(wrong: float) -> float:
    """Return how long the answer to a wrong key waits, when so many are not forgotten, in seconds."""
    return 0.0 if wrong <= FREE else min(LONGEST_S, max(FIRST_S, FIRST_S * 2.0 ** (wrong - FREE - 1.0)))
