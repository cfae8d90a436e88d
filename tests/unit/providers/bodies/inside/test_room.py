"""Where memory is short a large body is refused: msgspec, or the system, would end the process."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import pytest

from providers import ErrorKind, UpstreamError, bound_memory, check_room
from providers.bodies import EventSplitter
from providers.bodies.large_bodies import FEWEST_BYTES, _memory
from providers.exchange import read_body

if TYPE_CHECKING:
    from providers.http import Response

SHORT_OF_MEMORY = """
import resource
import msgspec
from providers import Request
from providers.vendors import Quirks
from providers.upstreams.http_upstream import streamed_body

prompt = msgspec.Raw(b'[{"role":"user","content":"' + b"a" * 40_000_000 + b'"}]')
request = Request("m", {"messages": prompt})
with open("/proc/self/statm") as pages:
    used = int(pages.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 45_000_000,) * 2)
try:
    streamed_body(request, Quirks())
except MemoryError:
    print("refused")
"""


def test_a_large_prompt_for_which_there_is_no_memory_is_an_error_and_not_the_end_of_the_process() -> None:
    ran = subprocess.run([sys.executable, "-c", SHORT_OF_MEMORY], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "refused\n", "")


@contextmanager
def full() -> Iterator[None]:
    """Have the process take all memory that it may."""
    most_bytes, _memory.most_bytes = _memory.most_bytes, 0
    yield
    _memory.most_bytes = most_bytes


class Sent:
    """A body in parts of 64 KB."""

    def __init__(self, size: int) -> None:
        self.left = size

    def expect_all(self) -> None:
        """Take note of nothing."""

    async def read(self) -> bytes:
        part = b"x" * min(64 * 1024, self.left)
        self.left -= len(part)
        return part


async def held(size: int) -> int:
    return len(await read_body(cast("Response", Sent(size)), 10_000_000))


def test_where_memory_is_used_up_large_answers_end_and_small_ones_do_not() -> None:
    assert asyncio.run(held(3_000_000)) == 3_000_000
    with full():
        assert asyncio.run(held(1_000_000)) == 1_000_000
        with pytest.raises(UpstreamError, match="no memory") as caught:
            asyncio.run(held(3_000_000))
    assert caught.value.kind is ErrorKind.LOCAL_RESOURCES


def test_so_do_large_events() -> None:
    splitter = EventSplitter()
    with full():
        assert splitter.feed(b"data: " + b"x" * 1_000_000) == b""
        with pytest.raises(UpstreamError, match="no memory"):
            splitter.feed(b"x" * 100_000)


def test_what_processes_have_before_they_are_forked_counts_once() -> None:
    had_bytes, before = _memory.resident_bytes(), _memory.most_bytes
    try:
        bound_memory(had_bytes + 4 * FEWEST_BYTES, processes=2)
        check_room(FEWEST_BYTES)
        with pytest.raises(MemoryError):
            check_room(3 * FEWEST_BYTES)
        bound_memory(0, processes=8)  # however little there is, some answers are taken on
        check_room(FEWEST_BYTES // 2)
    finally:
        _memory.most_bytes = before
