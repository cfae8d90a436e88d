"""No regular expression of the product takes longer than its input is long."""

import gc
import re
from collections.abc import Iterator, Sequence
from time import thread_time
from typing import Any

import pytest

from tests.support.searched import WHOLE, some
from tests.unit.patterns import Found, patterns, worst_inputs

_SHORTEST = 22  # characters: an exponential pattern takes some ten milliseconds
_SCREENED = 1_000  # long enough for a quadratic pattern to be fifty times as slow as a linear one
_LONGEST = 32_000 if WHOLE else 8_000
_ALWAYS, _DRAWN = 60, 60  # inputs, of several hundred
_WORST = 3  # inputs that are tried at full length
_NOTICED_S = 0.002  # what takes less at full length is of no consequence


@pytest.fixture(scope="module", autouse=True)
def without_collections() -> Iterator[None]:
    """Collect no garbage meanwhile: a collection amid many results takes longer than they do."""
    gc.disable()
    yield
    gc.enable()


def _took_s(pattern: re.Pattern[Any], method: str, text: str | bytes) -> float:
    began = thread_time()
    match method:
        case "sub":
            pattern.sub(lambda _: text[:0], text)
        case "finditer":
            for _ in pattern.finditer(text):
                pass
        case _:
            getattr(pattern, method)(text)
    return thread_time() - began


def _text(found: Found, parts: tuple[str, str, str], size: int) -> str | bytes:
    beginning, pump, end = parts
    text = beginning + pump * (size // len(pump)) + end
    return text.encode("latin-1", "replace") if found.is_bytes else text


def _is_too_slow(quarter_s: float, whole_s: float) -> bool:
    return whole_s > _NOTICED_S and whole_s > 9 * quarter_s


def slowest(found: Found, inputs: Sequence[tuple[str, str, str]]) -> str | None:
    """Return one of ``inputs`` with which twice the length takes more than three times as long; None: there is none."""
    pattern = found.compiled()
    for method in found.methods:
        took = []
        for parts in inputs:
            if min(_took_s(pattern, method, _text(found, parts, _SHORTEST)) for _ in range(2)) > _NOTICED_S:
                return f"{method} {parts} at {_SHORTEST} characters"
            took.append((_took_s(pattern, method, _text(found, parts, _SCREENED)), parts))
        took.sort(reverse=True)
        for _, parts in took[:_WORST]:
            size = _SCREENED * 2
            once: dict[int, float] = {}
            while size <= _LONGEST:
                lengths = (size // 4, size)
                for length in lengths:
                    if length not in once:
                        once[length] = _took_s(pattern, method, _text(found, parts, length))
                times = [once[length] for length in lengths]
                if _is_too_slow(*times):  # or something else came between
                    times = [
                        min(_took_s(pattern, method, _text(found, parts, each)) for _ in range(3)) for each in lengths
                    ]
                if _is_too_slow(*times):
                    return (
                        f"{method} {parts}: {times[0] * 1000:.2f} ms for {size // 4}, {times[1] * 1000:.2f} for {size}"
                    )
                size *= 2
    return None


@pytest.mark.parametrize(
    "text",
    [
        *(r"<[^>]*>", r"<h1[^>]*>(.*?)</h1>", r"\s*x", r"(a+)+b", r"a\s*(b|)\s*$", r"[^@\s]+@[^@\s]+\.[^@\s]+;"),
        *(r"bundle\w*(?:used|empty)", r"missing[ _](?:\w+[ _]){0,2}(?:key|part)"),
    ],
)
def test_patterns_that_are_not_linear_are_found(text: str) -> None:
    found = Found("here:1", text, 0, is_bytes=False, methods=("search",))
    assert slowest(found, list(worst_inputs(found))) is not None


@pytest.fixture(scope="module")
def found() -> list[Found]:
    return patterns()


def test_every_pattern_is_linear(found: list[Found]) -> None:
    assert len(found) > 150
    drawn = {each: some(worst_inputs(each), _ALWAYS, _DRAWN) for each in found}
    slow = {each.where: told for each, inputs in drawn.items() if (told := slowest(each, inputs)) is not None}
    assert not slow, "\n".join(f"{where}: {told}" for where, told in slow.items())
