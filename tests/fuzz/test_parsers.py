"""What ``make test WHAT=fuzz`` looks for at length, briefly: whatever a server says, the client keeps its word."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.app.http.http1_answers import BROKEN_OFF, REFUSED, TAKEN
from tests.fuzz import http1_target, http2_target
from tests.fuzz.fuzzed_connection import SCRIPT_BYTES, Drive
from tests.support.searched import examples
from tests.unit.providers.http.inside.h2_server import END_HEADERS, frame, headers
from tests.unit.providers.http.inside.h2_server import settings as settings_frame

DRIVES: dict[str, Drive] = {"http1": http1_target.drive, "http2": http2_target.drive}
SEEDS = sorted(path for target in DRIVES for path in (Path(__file__).parent / "seeds" / target).iterdir())
SHORT_BYTES = 200  # an answer to be put together with others

scripts = st.binary(min_size=SCRIPT_BYTES, max_size=SCRIPT_BYTES)
answers = st.sampled_from([case.answer for case in (*TAKEN, *REFUSED, *BROKEN_OFF) if len(case.answer) < SHORT_BYTES])
lines = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"content-length: 3\r\n",
        b"transfer-encoding: chunked\r\n",
        b"connection: close\r\n",
        b"\r\n",
        b"3\r\nabc\r\n",
        b"0\r\n\r\n",
    ]
)
http1_talk = st.lists(st.one_of(answers, lines, st.binary(max_size=10)), max_size=12).map(b"".join)

stream_ids = st.sampled_from([0, 1, 2, 3, 5, 7])
payloads = st.one_of(
    st.binary(max_size=30),
    st.integers(0, 2**32 - 1).map(lambda number: number.to_bytes(4, "big")),
    st.sampled_from([b"\x88", b"\x88\x0f\x0d\x013", b"\x08\x03103", bytes(8), bytes(16_384), bytes(16_385)]),
)
any_frame = st.builds(frame, st.integers(0, 11), stream_ids, payloads, st.integers(0, 255))
fitting_frame = st.one_of(
    st.builds(headers, st.sampled_from([1, 3, 5]), end=st.booleans()),
    st.builds(lambda stream, data, flags: frame("DATA", stream, data, flags), stream_ids, payloads, st.integers(0, 1)),
    st.builds(lambda stream, flags: frame("HEADERS", stream, b"\x88", flags), stream_ids, st.just(END_HEADERS)),
    st.builds(lambda size: settings_frame(initial_window_size=size), st.integers(0, 2**31)),
    st.builds(lambda count: settings_frame(max_concurrent_streams=count), st.integers(0, 20)),
    st.builds(
        lambda stream, size: frame("WINDOW_UPDATE", stream, size.to_bytes(4, "big")),
        stream_ids,
        st.integers(0, 2**31),
    ),
)
http2_talk = st.lists(st.one_of(fitting_frame, fitting_frame, any_frame), max_size=20).map(
    lambda frames: settings_frame() + b"".join(frames)
)


@pytest.mark.parametrize("seed", SEEDS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_the_seeds_hold(seed: Path) -> None:
    DRIVES[seed.parent.name](seed.read_bytes())


@pytest.mark.parametrize("seed", SEEDS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_the_seeds_hold_with_a_byte_changed(seed: Path) -> None:
    data = seed.read_bytes()
    dice = random.Random(seed.name)
    for _ in range(50):
        changed = bytearray(data)
        changed[dice.randrange(len(data))] = dice.randrange(256)
        DRIVES[seed.parent.name](bytes(changed))


@given(script=scripts, said=http1_talk)
@settings(max_examples=examples(500))
def test_whatever_http_1_a_server_talks_the_client_keeps_its_word(script: bytes, said: bytes) -> None:
    http1_target.drive(script + said)


@given(script=scripts, said=http2_talk)
@settings(max_examples=examples(500))
def test_whatever_http_2_a_server_talks_the_client_keeps_its_word(script: bytes, said: bytes) -> None:
    http2_target.drive(script + said)


@pytest.mark.parametrize("target", DRIVES)
@given(script=scripts, said=st.binary(max_size=300))
@settings(max_examples=examples(200))
def test_whatever_bytes_come_the_client_keeps_its_word(target: str, script: bytes, said: bytes) -> None:
    DRIVES[target](script + said)
