"""For large requests and answers: a thread for long work, checks that memory is there, and JSON.

The thread does one piece of work after the other: several threads would wait for one interpreter, and so would the
event loop.
"""

import asyncio
import math
import resource
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from providers.refusals import ErrorKind, UpstreamError

_T = TypeVar("_T")
_STATM = Path("/proc/self/statm")
_SWITCH_S = 0.001  # in which a turn of the event loop gets the interpreter while the thread works; 0.005 by default
_RESTS_AFTER_S, _LONGEST_REST_S = 0.02, 0.1
# Of the thread's stack, as glibc's threads have. Python 3.13 lets the JSON decoder recurse 10,000 deep. musl's 128 KiB
# are too few for that: a body full of brackets would end the process.
_STACK_BYTES = 8 * 1024 * 1024


class _Thread:
    """A thread that rests after longer work for as long as the work took, so that the event loop can work."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None  # None: not needed so far
        self._rests_until_s = 0.0

    def submit(self, work: Callable[[], _T]) -> "asyncio.Future[_T]":
        if self._pool is None:
            threading.stack_size(_STACK_BYTES)  # of threads that start from now on
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="work")
        return asyncio.get_running_loop().run_in_executor(self._pool, self._done, work)

    def _done(self, work: Callable[[], _T]) -> _T:
        if (rest_s := self._rests_until_s - time.monotonic()) > 0:
            time.sleep(rest_s)
        before, began_s = sys.getswitchinterval(), time.monotonic()
        sys.setswitchinterval(_SWITCH_S)
        try:
            return work()
        finally:
            sys.setswitchinterval(before)
            took_s = time.monotonic() - began_s
            if took_s > _RESTS_AFTER_S:
                self._rests_until_s = began_s + took_s + min(took_s, _LONGEST_REST_S)


_thread = _Thread()


def aside(work: Callable[..., _T], *given: object) -> "asyncio.Future[_T]":
    """Return the coming result of ``work(*given)``, done in the thread when its turn comes, so that other calls go on.

    After a cancellation the thread ends the work on its own, and its result is dropped.
    """
    return _thread.submit(partial(work, *given))


FEWEST_BYTES = 96 * 1024 * 1024  # a process may grow by so much, however little memory there is


class _Memory:
    most_bytes = math.inf  # of this process, while it takes on large answers

    def resident_bytes(self) -> int:
        """Return this process's own resident bytes; 0 where the system does not say."""
        try:
            with _STATM.open("rb", buffering=0) as statm:
                resident, shared = map(int, statm.read().split()[1:3])
        except OSError:
            return 0
        return (resident - shared) * resource.getpagesize()


_memory = _Memory()


def bound_memory(most_bytes: float, processes: int = 1) -> None:
    """Have ``check_room`` refuse what would need more than ``most_bytes`` for all ``processes``.

    Call this before the processes are forked: the memory of this process is shared by then.
    """
    had_bytes = _memory.resident_bytes()
    _memory.most_bytes = had_bytes + max(FEWEST_BYTES, (most_bytes - had_bytes) / processes)


def check_room(size: int) -> None:
    """Check that ``size`` more bytes can be had, and that the process stays within its bound.

    Without memory for a text that it reads or for JSON that it makes, msgspec 0.22 ends the process (``encoded`` does
    not). A cgroup ends a process that takes too much.

    Raises:
        MemoryError: there is no room.

    """
    if _memory.resident_bytes() + size > _memory.most_bytes:
        raise MemoryError
    bytes(size)  # a bytearray would be written to, which takes long for megabytes


def check_room_for_answer(size: int) -> None:
    """Check that there is memory for the copies of an answer of ``size`` bytes.

    Raises:
        UpstreamError: there is no room (local_resources).

    """
    try:
        check_room(size)
    except MemoryError:
        raise UpstreamError(ErrorKind.LOCAL_RESOURCES, "the gateway has no memory for an answer so large") from None


# JSON and MessagePack of values that may be large. Without memory, ``encode`` of msgspec 0.22 ends the process: it
# gives up its buffer of bytes, and then releases it. ``encode_into`` keeps the buffer, and raises MemoryError. This
# costs a tenth of a microsecond and a copy.

_json_into = msgspec.json.Encoder().encode_into
_packed_into = msgspec.msgpack.Encoder().encode_into


def encoded(value: Any, encoder: msgspec.json.Encoder | None = None) -> bytes:
    """Return ``value`` as JSON, which may be large.

    Raises:
        MemoryError: there is no room for the JSON.

    """
    buffer = bytearray()
    (_json_into if encoder is None else encoder.encode_into)(value, buffer)
    return bytes(buffer)


def raw_json(value: Any) -> msgspec.Raw:
    """Return ``value``, which may be large, as raw JSON."""
    buffer = bytearray()
    _json_into(value, buffer)
    return msgspec.Raw(bytes(buffer))


def packed(value: Any) -> bytes:
    """Return ``value``, which may be large, as MessagePack."""
    buffer = bytearray()
    _packed_into(value, buffer)
    return bytes(buffer)
