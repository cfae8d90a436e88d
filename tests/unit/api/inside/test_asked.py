"""How long a prompt is taken to be, from its bytes alone, and whether all of it is in the body."""

import base64
import json
from typing import Any

import msgspec
import pytest

from gateway.api import ENDPOINTS, Needs, ParsedRequest
from gateway.api.endpoints.chat import CHAT_MEDIA as MEDIA
from gateway.api.request import needs_of
from gateway.http import CHARS_PER_TOKEN, Contents, scan_steps
from gateway.settings import Settings
from providers import finished


def needs(content: object, *, ensure_ascii: bool = True) -> Needs:
    prompt = json.dumps([{"role": "user", "content": content}], ensure_ascii=ensure_ascii).encode()
    return needs_of(
        msgspec.Raw(prompt), Contents({}, len(prompt)), MEDIA, max_tokens=None, tools=False, json_schema=False
    )


def picture(data: str) -> list[dict[str, object]]:
    return [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}]


@pytest.mark.parametrize("written", [str, lambda data: "\n".join(data[i : i + 76] for i in range(0, len(data), 76))])
def test_the_bytes_of_a_picture_are_no_text_however_they_are_wrapped(written: object) -> None:
    data = base64.b64encode(bytes(range(256)) * 4000).decode()
    assert needs(picture(written(data))).prompt_tokens < 1100  # type: ignore[operator] # one of the two above


def test_slashes_that_are_escaped_do_not_make_a_picture_text() -> None:
    data = base64.b64encode(bytes(range(256)) * 4000).decode()
    prompt = json.dumps([{"role": "user", "content": picture(data)}]).replace("/", r"\/").encode()
    estimated = needs_of(
        msgspec.Raw(prompt), Contents({}, len(prompt)), MEDIA, max_tokens=None, tools=False, json_schema=False
    )
    assert estimated.vision
    assert estimated.prompt_tokens < 1100


def test_text_is_as_long_escaped_as_it_is_in_utf_8() -> None:
    text = "Всё счастливые семьи похожи друг на друга. " * 2000
    plain, escaped = needs(text, ensure_ascii=False).prompt_tokens, needs(text).prompt_tokens
    assert escaped == pytest.approx(plain, rel=0.01)


@pytest.mark.parametrize("text", ["\\u" * 30_000, "\x01" * 30_000], ids=["backslashes", "controls"])
@pytest.mark.parametrize("before", [None, picture("")], ids=["text", "picture"])
def test_whatever_is_written_in_escapes_has_tokens(text: str, before: list[dict[str, object]] | None) -> None:
    content: Any = text if before is None else [*before, {"type": "text", "text": text}]
    assert needs(content).prompt_tokens >= 1000


def test_escapes_that_look_like_base64_are_not_left_out_twice() -> None:
    content = [*picture(""), {"type": "text", "text": "\x01" * 30_000}, {"type": "text", "text": "word " * 8_000}]
    assert needs(content).prompt_tokens >= 8_000 * 5 // 3 // CHARS_PER_TOKEN


def read(path: str, fields: dict[str, Any], *, odd_key: bool = False) -> tuple[ParsedRequest, int]:
    """Return what is read of a body, and its size."""
    body = json.dumps({"model": "m", "max_tokens": 10, **fields}).encode()
    if odd_key:
        body = body.replace(b'"type"', rb'"\u0074ype"')
    surface = next(each for each in ENDPOINTS.values() if each.dialect.path == path)
    settings = Settings.model_construct(responses_store=False)
    return surface.read(Contents.of(body), None, settings), len(body)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("chat/completions", {"messages": [{"role": "user", "content": 'a \\"type\\": \\"file\\"'}], "temperature": 1}),
        ("responses", {"input": "Hello"}),
        (
            "responses",
            {"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}]},
        ),
        ("messages", {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]}),
        ("completions", {"prompt": "Hello"}),
    ],
)
def test_a_prompt_of_text_is_all_in_the_body(path: str, fields: dict[str, Any]) -> None:
    asked, size = read(path, fields)
    assert asked.inline_bytes(asked.fields) == size


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "video_url"}]}]}),
        ("chat/completions", {"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]}),
        ("chat/completions", {"messages": [{"role": "user", "content": "x"}], "web_search_options": {}}),
        ("chat/completions", {"messages": [{"role": "user", "content": "x"}], "plugins": [{"id": "web"}]}),
        ("responses", {"input": [{"type": "item_reference", "id": "msg_1"}]}),
        ("responses", {"input": "Hello", "previous_response_id": "resp_1"}),
        ("responses", {"input": "Hello", "conversation": "conv_1"}),
        ("responses", {"input": "Hello", "prompt": {"id": "pmpt_1"}}),
        ("responses", {"input": "Hello", "tools": [{"type": "file_search"}]}),
        ("messages", {"messages": [{"role": "user", "content": [{"type": "container_upload", "file_id": "f"}]}]}),
        ("messages", {"messages": [{"role": "user", "content": "x"}], "container": "c"}),
    ],
)
def test_of_a_prompt_with_files_or_what_is_stored_the_body_says_little(path: str, fields: dict[str, Any]) -> None:
    asked, _ = read(path, fields)
    assert asked.inline_bytes(asked.fields) is None


def test_a_key_that_is_written_in_escapes_hides_no_file() -> None:
    asked, _ = read("chat/completions", {"messages": [{"content": [{"type": "video_url"}]}]}, odd_key=True)
    assert asked.inline_bytes(asked.fields) is None


@pytest.mark.parametrize("kind", ["text", "video_url"])
def test_a_large_prompt_is_surveyed_for_the_same(kind: str) -> None:
    prompt = msgspec.Raw(json.dumps([{"type": kind, "text": "x" * 3_000_000}]).encode())
    surveyed = Contents({}, 3_000_000, scan_media=finished(scan_steps(prompt, MEDIA)))
    found = needs_of(prompt, surveyed, MEDIA, max_tokens=None, tools=False, json_schema=False)
    assert found.inline == (kind == "text")
