"""When a silent answer shows that it goes on, and between which of its bytes."""

import asyncio

import pytest

from gateway.api.keep_alive import KeepAlive, is_between
from tests.unit.racing.virtual_time import run


class Answer:
    """An answer that notes when something was said in its silence."""

    def __init__(self) -> None:
        self.said: list[float] = []
        self.keeping = KeepAlive(self._say)

    async def _say(self) -> None:
        self.said.append(round(asyncio.get_running_loop().time() - self.began, 3))

    async def waits(self, *seconds: float) -> list[float]:
        """Send something after each of these pauses but the last; return when something was said."""
        self.began = asyncio.get_running_loop().time()
        *pauses, last = seconds
        for each in pauses:
            await asyncio.sleep(each)
            self.keeping.sent()
        await asyncio.sleep(last)
        await self.keeping.stop()
        return self.said


@pytest.mark.parametrize(
    ("pauses", "said"),
    [
        ((10.0,), [3.0, 6.0, 9.0]),
        ((2.0, 2.0, 2.9, 2.0), []),
        ((2.0, 7.0, 1.0), [5.0, 8.0]),  # exactly so long after what was sent, not by a beat of its own
        ((*[0.1] * 50, 3.5), [8.0]),
    ],
)
def test_each_silence_is_as_long_as_it_may_be(pauses: tuple[float, ...], said: list[float]) -> None:
    async def main() -> list[float]:
        answer = Answer()
        answer.keeping.every(3.0)
        return await answer.waits(*pauses)

    assert run(main()) == said


def test_how_often_may_change_and_nothing_is_said_after_the_end() -> None:
    async def main() -> list[float]:
        answer = Answer()
        answer.keeping.every(3.0)
        await answer.waits(4.0)
        answer.keeping.every(1.0)
        await asyncio.sleep(5.0)
        return answer.said

    async def changes() -> list[float]:
        answer = Answer()
        answer.keeping.every(30.0)
        asyncio.get_running_loop().call_later(2.0, answer.keeping.every, 3.0)
        asyncio.get_running_loop().call_later(7.0, answer.keeping.every, None)
        return await answer.waits(20.0)

    assert run(main()) == [3.0]
    assert run(changes()) == [3.0, 6.0]


@pytest.mark.parametrize(
    ("tail", "between"),
    [
        (b"x\n\n", True),
        (b"\r\n\r\n", True),
        (b"x\r\r", True),
        (b"x\r\n\n", True),
        (b"\r\n\r", False),  # the rest of the line's end comes next
        (b"e\r\n", False),
        (b"e\n", False),
        (b"xxx{", False),
        (b"", False),
    ],
)
def test_a_comment_stands_between_events_only(tail: bytes, *, between: bool) -> None:
    assert is_between(tail) is between
