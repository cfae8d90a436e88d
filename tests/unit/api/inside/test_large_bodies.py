"""Bodies of megabytes: understood as small ones are, in slices, and refused before they are made into anything."""

import random
import sys
import threading
from functools import partial

import msgspec
import pytest

from gateway.api import bodies
from gateway.api.bodies import contents_steps, read_contents
from gateway.api.endpoints.chat import CHAT_MEDIA as MEDIA
from gateway.api.preferences import read_preferences
from gateway.core.errors import InvalidRequest
from gateway.http import BodyWork, Contents, decoded, json_body, read_fields, values_outside_strings
from gateway.http.json_body import MOST_FIELDS
from providers import finished
from providers.bodies import large_bodies

MIB = 2**20
PLAIN = b"lorem ipsum " * (2 * MIB // 12)
TEXTS = {
    "ascii": PLAIN,
    "one emoji": "😀".encode() + PLAIN,
    "wide": "привет ".encode() * (2 * MIB // 13),
    "escapes": b"\\u0000" * (2 * MIB // 6),
    "quotes": b'\\"' * MIB,
    "backslashes": b"\\\\" * MIB,
    "braces": b"[{,}]" * (2 * MIB // 5),
}


def body_of(text: bytes) -> bytes:
    return b'{"model":"m","messages":[{"role":"user","content":"' + text + b'"}]}'


def test_fields_are_counted_before_they_are_read_repeated_ones_too() -> None:
    allowed = b"{" + b'"a":1,' * (MOST_FIELDS - 1) + b'"b":[{"c":1}]}'
    assert read_fields(allowed) == {"a": msgspec.Raw(b"1"), "b": msgspec.Raw(b'[{"c":1}]')}
    plainly = b"{" + b'"a":1,' * MOST_FIELDS + b'"b":1}'
    before_the_rest = b"{" + b'"":1,' * (MOST_FIELDS + 1) + b"no JSON from here"
    for refused in (plainly, before_the_rest):
        with pytest.raises(InvalidRequest, match="more than 256 fields at its top level"):
            read_fields(refused)


def test_colons_in_texts_and_further_down_are_no_fields() -> None:
    body = b'{"a":"' + b":" * 1000 + b'","b":{' + b'"":1,' * 1000 + b'"":1}}'
    assert list(read_fields(body)) == ["a", "b"]
    assert {type(name) for name in read_fields(body)} == {str}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_a_large_body_is_understood_as_a_small_one_would_be(text: bytes) -> None:
    body = body_of(text)
    work = BodyWork()
    found = await read_contents(body, work, "messages", MEDIA)
    assert (found.fields, found.size) == (Contents.of(body).fields, len(body))
    assert work.slices > 2 * MIB // bodies._SLICE_BYTES
    assert found.scan_media is not None


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (body_of(PLAIN + b"\xff"), "UTF-8"),
        (body_of(PLAIN + b"\xf0\x9f\x98"), "UTF-8"),
        (body_of(PLAIN + b"\xed\xa0\x80"), "UTF-8"),
        (body_of(PLAIN + b"\n"), "not valid JSON"),
        (body_of(PLAIN)[:-1], "not valid JSON"),
        (b"[" + body_of(PLAIN) + b"]", "must be a JSON object"),
        (b'{"a":' + b"[" * 2 * MIB, "nested too deeply"),
        (b'{"tools":["' + PLAIN + PLAIN + b'"]}', "'tools' is longer than 2 MiB"),
    ],
    ids=["byte", "cut letter", "surrogate", "control", "cut", "array", "depth", "tools"],
)
async def test_a_large_body_that_makes_no_sense_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        await read_contents(body, BodyWork(), "messages", MEDIA)


def test_a_field_that_is_nested_deeper_than_its_body_could_be_read_is_refused_too() -> None:
    deep = msgspec.Raw(b'{"x":' + b"[" * 2_000_000)
    with pytest.raises(InvalidRequest, match="'tools' is nested too deeply"):
        decoded("tools", deep, msgspec.json.Decoder(dict[str, msgspec.Raw]))
    with pytest.raises(InvalidRequest, match="'provider' is nested too deeply"):
        read_preferences({"provider": deep})


async def test_too_many_values_are_refused_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MOST_VALUES", MIB)
    texts = body_of(b"[,{" * MIB)  # in a string, which costs nothing
    assert (await read_contents(texts, BodyWork())).values == len(b"{,[{,")
    with pytest.raises(InvalidRequest, match="more than 1048576 values"):
        await read_contents(b'{"a":[' + b"1," * 2 * MIB + b"no JSON", BodyWork())


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64])
def test_values_are_told_from_strings_wherever_a_slice_ends(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_body, "STRUCTURE_BYTES", size)
    chance = random.Random(size)
    pieces = ["[", "]", "{", "}", ",", ":", " ", "1", r'"a[,"', r'"\\"', r'"\",["', r'"\\\",{"', '""', r'"\u005b[\n,"']
    for _ in range(500):
        chosen = [chance.choice(pieces) for _ in range(chance.randrange(20))]
        expected = sum(piece in {"[", "{", ","} for piece in chosen)
        assert finished(values_outside_strings("".join(chosen).encode(), 100)) == expected, chosen


DEEP = b'{"messages":[],"deep":' + b"[" * 10_000_000 + b"]" * 10_000_000 + b"}"


async def test_ten_million_brackets_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        await read_contents(DEEP[:MIB], BodyWork())
    with pytest.raises(InvalidRequest, match="more than 8000000 values"):
        await read_contents(DEEP, BodyWork())


@pytest.mark.parametrize("stack_kib", [0] if sys.version_info[:2] == (3, 13) else [0, 256])  # which needs 512
def test_they_are_refused_in_every_thread(stack_kib: int) -> None:
    """Python has no limit of its own since 3.14: it looks how much is left of the thread's stack."""
    refusals: list[InvalidRequest] = []

    def read() -> None:
        try:
            read_fields(DEEP)
        except InvalidRequest as refusal:
            refusals.append(refusal)

    before = threading.stack_size(stack_kib * 1024)
    try:
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert [refusal.message for refusal in refusals] == ["the body is nested too deeply"]


async def test_they_are_refused_in_the_thread_for_work_that_takes_long() -> None:
    """However small the stacks of threads are otherwise: on musl they have 128 KiB."""
    before = threading.stack_size(128 * 1024)
    try:
        with pytest.raises(InvalidRequest, match="the body is nested too deeply"):
            await large_bodies._Thread().submit(partial(read_fields, DEEP))
    finally:
        threading.stack_size(before)


def test_no_step_looks_at_more_than_a_slice() -> None:
    """The steps are as many as the slices of all that is looked at, and one for the decoder."""
    body = body_of("😀".encode() + b"x" * (8 * MIB))
    slices = -(-len(body) // bodies._SLICE_BYTES)
    assert sum(1 for _ in contents_steps(body, "messages", MEDIA)) >= 3 * (slices - 1) + 2
