"""A usage that comes in several events is one: translated, as in chat itself."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from providers import TranslatedExchange, Usage, completed, events
from providers.dialects import CHAT, MESSAGES, RESPONSES, Dialect, translations
from providers.models import usage_of
from tests.unit.racing.inside.test_splicing import Data

FIRST = {"prompt_tokens": 50, "completion_tokens": 9, "cost": 0.02, "prompt_tokens_details": {"cached_tokens": 40}}
PAIRS: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = [
    (FIRST, {"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 59}),
    (FIRST, {"prompt_tokens": 50, "completion_tokens": 90, "total_tokens": 140}),  # the cost was of a part
    (FIRST, {"prompt_tokens": 50, "completion_tokens": 9, "cost": 0.03, "prompt_tokens_details": None}),
    ({"prompt_tokens": 50}, {"completion_tokens": 9}),
    (FIRST, {"completion_tokens": 12, "prompt_tokens_details": {}}),
    ({"prompt_tokens": 50, "completion_tokens": 9}, {"prompt_tokens": 50, "completion_tokens": 12}),
]


def told(usages: tuple[Mapping[str, Any], ...], target: Dialect) -> Usage:
    """Return the usage that a client in ``target`` reads."""

    def chunks() -> Iterator[bytes]:
        top = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        yield msgspec.json.encode({**top, "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}]})
        yield msgspec.json.encode({**top, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        for usage in usages:
            yield msgspec.json.encode({**top, "choices": [], "usage": usage})
        yield b"[DONE]"

    exchange = TranslatedExchange(
        Data([b"data: %b\n\n" % chunk for chunk in chunks()]), translations(CHAT, target, {}, ())
    )

    async def read() -> Usage:
        usage: Usage | None = None
        while data := await exchange.read():
            for event in events(data):
                chunk = target.answers.read_event(event.data, ())
                usage = usage if chunk.usage is None else chunk.usage
        assert usage is not None
        return usage

    return asyncio.run(read())


@pytest.mark.parametrize("target", [MESSAGES, RESPONSES], ids=lambda each: each.name)
@pytest.mark.parametrize("usages", PAIRS)
def test_what_only_an_earlier_usage_has_said_counts(
    usages: tuple[Mapping[str, Any], Mapping[str, Any]], target: Dialect
) -> None:
    first, last = map(usage_of, usages)
    own, translated = completed(last, first), told(usages, target)
    assert translated.stated_usd == own.stated_usd
    assert (translated.prompt_tokens, translated.completion_tokens) == (own.prompt_tokens, own.completion_tokens)
    assert (translated.cached_tokens or 0) == (own.cached_tokens or 0)
