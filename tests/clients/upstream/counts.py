"""What became of every request: begun, answered, refused, or cut off by who asked."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tests.clients.upstream.errors import Refused


class Counts:
    """Counts per path; ``quiet`` waits until nothing is under way."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.cut: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._under_way = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    @contextmanager
    def request(self, path: str) -> Iterator[None]:
        """Count what becomes of a request to ``path``."""
        self.begun[path] += 1
        self._under_way += 1
        self._quiet.clear()
        try:
            yield
        except Refused:
            self.refused[path] += 1
            raise
        except BaseException:
            self.cut[path] += 1
            raise
        else:
            self.answered[path] += 1
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._quiet.set()

    def failed_before(self, key: str) -> int:
        """Return how often this was asked for ``key`` before."""
        self._failures[key] += 1
        return self._failures[key] - 1

    async def quiet(self) -> None:
        """Wait until nothing is under way."""
        await self._quiet.wait()

    def as_json(self) -> dict[str, dict[str, int]]:
        """Return all counts by what became of the requests."""
        return {
            "begun": dict(self.begun),
            "answered": dict(self.answered),
            "refused": dict(self.refused),
            "cut": dict(self.cut),
        }
