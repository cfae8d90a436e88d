"""What is kept of recent answers: bounded in bytes and time, fair, and apart for each client."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import pytest

from gateway.memory import AnswerMemory, AnswerScope
from gateway.memory.answers import MOST_CONVERSATION_BYTES
from gateway.settings import ResponsesMemorySettings

if TYPE_CHECKING:
    import asyncio

ANN, BOB = AnswerScope("ann"), AnswerScope("bob")
MIB = 2**20


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def nothing(_: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
    raise AssertionError("there is no Redis")


def memory(max_mb: float = 1.0, clock: Clock | None = None, **settings: Any) -> AnswerMemory:
    return AnswerMemory(ResponsesMemorySettings(max_mb=max_mb, **settings), clock=clock or Clock(), start=nothing)


def text(number: int, size: int = 100) -> bytes:
    return b'{"role":"user","content":"%08d%b"}' % (number, b"x" * size)


async def test_a_conversation_is_its_items_and_those_of_the_answer() -> None:
    kept = memory()
    kept.keep(ANN, "resp_1", [b'"a"'], [("msg_1", b'"b"'), (None, b'"c"')])
    assert await kept.conversation(ANN, "resp_1") == [b'"a"', b'"b"', b'"c"']
    assert await kept.item(ANN, "msg_1") == b'"b"'
    assert await kept.conversation(BOB, "resp_1") is None
    assert await kept.item(BOB, "msg_1") is None
    kept.close()


async def test_ten_thousand_conversations_of_one_client_take_what_they_may_and_leave_others_theirs() -> None:
    kept = memory()
    kept.keep(BOB, "resp_of_bob", [text(0)], [("msg_of_bob", text(1))])
    for number in range(10_000):
        kept.keep(ANN, f"resp_{number}", [text(2 * number)], [(f"msg_{number}", text(2 * number + 1))])
        assert kept.size <= MIB
    assert await kept.conversation(BOB, "resp_of_bob") == [text(0), text(1)]
    assert await kept.conversation(ANN, "resp_0") is None
    assert await kept.item(ANN, "msg_0") is None
    assert await kept.conversation(ANN, "resp_9999") is not None
    kept.close()


async def test_made_up_keys_of_one_client_displace_nothing_of_another() -> None:
    kept, size = memory(), 100_000
    kept.keep(BOB, "resp_of_bob", [text(number, size) for number in range(2)], [])
    for number in range(40):
        kept.keep(AnswerScope("ann", f"key-{number}"), "resp", [text(100 + number, size)], [])
        assert kept.size <= MIB
    assert await kept.conversation(BOB, "resp_of_bob") is not None
    assert await kept.conversation(AnswerScope("ann", "key-0"), "resp") is None  # hers that was not used for longest
    assert await kept.conversation(AnswerScope("ann", "key-39"), "resp") is not None
    assert await kept.conversation(AnswerScope("ann", "key-38"), "resp") is not None
    kept.close()


async def test_a_client_alone_has_all_the_room_with_many_keys() -> None:
    kept, size = memory(), 100_000
    for number in range(9):
        kept.keep(AnswerScope("ann", f"key-{number}"), "resp", [text(number, size)], [])
    for number in range(9):
        assert await kept.conversation(AnswerScope("ann", f"key-{number}"), "resp") is not None
    kept.close()


async def test_what_is_said_again_in_each_turn_counts_once() -> None:
    kept, said = memory(), list[bytes]()
    for number in range(50):
        said.append(text(number, 5_000))
        kept.keep(ANN, f"resp_{number}", said, [])
    assert 250_000 < kept.size < 400_000  # and not 50 * 51 / 2 * 5,000
    assert await kept.conversation(ANN, "resp_49") == said
    kept.close()


async def test_all_that_was_counted_is_given_back() -> None:
    kept, said = memory(), list[bytes]()
    for number in range(20):
        said.append(text(number))
        kept.keep(ANN, f"resp_{number}", said, [(f"msg_{number}", text(number, 50))])
    kept.keep(ANN, "resp_3", [text(99)], [("msg_3", text(98))])  # a server that counts its answers from the start
    for number in range(20):
        assert await kept.forget(ANN, f"resp_{number}") == (number != 3)
    assert kept.size == 0
    kept.close()


async def test_what_two_answers_are_called_names_neither() -> None:
    kept = memory()
    kept.keep(ANN, "resp_7", [text(1)], [("msg_7", text(2)), ("msg_8", text(3))])
    kept.keep(ANN, "resp_9", [text(4)], [("msg_7", text(5))])
    assert await kept.item(ANN, "msg_7") is None
    assert await kept.item(ANN, "msg_8") == text(3)
    kept.keep(ANN, "resp_7", [text(6)], [("msg_6", text(7))])
    assert await kept.conversation(ANN, "resp_7") is None
    assert await kept.conversation(ANN, "resp_9") == [text(4), text(5)]
    kept.keep(ANN, "resp_9", [text(4)], [("msg_7", text(5))])
    assert await kept.conversation(ANN, "resp_9") == [text(4), text(5)]
    assert await kept.forget(ANN, "resp_9")
    assert kept.size == 0
    kept.close()


async def test_a_conversation_that_is_too_long_is_not_kept() -> None:
    kept = memory(max_mb=64.0)
    kept.keep(ANN, "resp_1", [b"x" * (MOST_CONVERSATION_BYTES + 1)], [])
    assert (await kept.conversation(ANN, "resp_1"), kept.size) == (None, 0)
    kept.close()


async def test_it_is_forgotten_when_nobody_has_gone_on_from_it_in_time() -> None:
    clock = Clock()
    kept = memory(clock=clock, ttl_s=60.0)
    kept.keep(ANN, "resp_1", [text(1)], [])
    clock.now_s = 59.0
    assert await kept.conversation(ANN, "resp_1") is not None
    clock.now_s = 118.0
    assert await kept.conversation(ANN, "resp_1") is not None
    clock.now_s = 178.0
    assert await kept.conversation(ANN, "resp_1") is None
    assert kept.size == 0
    kept.close()


@pytest.mark.parametrize("max_mb", [0.0, 0.001])
async def test_a_reload_that_takes_its_room_away_has_it_forget(max_mb: float) -> None:
    kept = memory()
    kept.keep(ANN, "resp_1", [text(1, 9_000)], [])
    kept.configure(ResponsesMemorySettings(max_mb=max_mb))
    assert (kept.size, await kept.conversation(ANN, "resp_1")) == (0, None)
    kept.close()
