"""What became of every request: begun, answered, refused, or cut off by who asked."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Counts:
    """Counts per path; ``quiet`` waits until nothing is under way."""

    def __init__(self) -> None:
        self._counts = {word: Counter[str]() for word in ("begun", "answered", "refused", "cut")}
        self._under_way = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    @contextmanager
    def request(self, path: str) -> Iterator[Callable[[int], None]]:
        """Count a request to ``path``; yield what is called with its status once all of its answer was sent."""
        became = "cut"

        def ended(status: int) -> None:
            nonlocal became
            became = "refused" if status >= 400 else "answered"

        self._counts["begun"][path] += 1
        self._under_way += 1
        self._quiet.clear()
        try:
            yield ended
        finally:
            self._counts[became][path] += 1
            self._under_way -= 1
            if not self._under_way:
                self._quiet.set()

    async def quiet(self) -> None:
        """Wait until nothing is under way."""
        await self._quiet.wait()

    def as_json(self) -> dict[str, dict[str, int]]:
        """Return all counts by what became of the requests."""
        return {word: dict(counts) for word, counts in self._counts.items()}
