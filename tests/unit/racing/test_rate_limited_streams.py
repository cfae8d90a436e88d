"""A rate limit that a provider tells inside a stream, where only the reader of the events sees it."""

import asyncio

import msgspec
import pytest

from gateway.core.errors import ApiError
from providers import ErrorKind
from providers.dialects import CHAT, MESSAGES, Dialect
from providers.keys import KeyRing
from tests.unit.racing.track import Timetable, Track, event
from tests.unit.racing.virtual_time import run


@pytest.mark.parametrize("speaks", [CHAT, MESSAGES])  # a translation raises the error, or the reader of the events
def test_a_key_whose_limit_is_told_inside_a_stream_is_not_used_again_at_once(speaks: Dialect) -> None:
    said = event(type="error", error={"type": "rate_limit_error", "code": 429, "message": "slow down"})
    key = Timetable("key", [(0.1, said), (0.1, None)])

    async def two_calls() -> list[tuple[str | None, int]]:
        ring = KeyRing("acme", ("sk-the-only-secret",), lambda _: key, clock=asyncio.get_running_loop().time)
        seen = []
        for _ in range(2):
            track = Track(key)
            deployment = msgspec.structs.replace(track.model.deployments["key"], upstream=ring, speaks=(speaks,))
            track.model = msgspec.structs.replace(track.model, deployments={"key": deployment})
            with pytest.raises(ApiError):
                await track.run()
            [ended] = track.recorder.ended
            seen.append((ended.error_kind, len(key.requests)))
        return seen

    assert run(two_calls()) == [(ErrorKind.RATE_LIMITED, 1), (ErrorKind.RATE_LIMITED, 1)]
