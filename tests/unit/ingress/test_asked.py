"""How long a prompt is taken to be, from its bytes alone."""

import base64
import json

import msgspec
import pytest

from gateway.api.endpoints import CHAT_MEDIA as MEDIA
from gateway.api.json_body import Contents
from gateway.api.request import Needs, needs_of


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
