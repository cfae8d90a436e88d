"""The provider as a process: streamed chat completions whose length the call itself says, with usage.

A call's ``user`` is ``limits-NUMBER-TOKENS``. ``GET /_seen`` returns, as JSON, what each call since the last time was
seen to be: the only witness of how many calls ran at the same time that no gateway can mislead.
"""

import re
import sys
import time

import msgspec
import uvloop

from benchmarks.limits.trials import PROMPT_TOKENS
from providers.simulator import DONE, Answering, event, usage
from tests.support.measured.serving import LAST_CHUNK, STREAM_HEAD, Serving, framed, response, serve

FIRST_S = 0.15  # from the request to the first token
TOKEN_S = 0.003  # for each token of the answer

_ASKED = re.compile(rb'"user" *: *"limits-(\d+)-(\d+)"')
_ANSWERING = Answering("chatcmpl-limits", "limits-model", created=0)


class Seen(msgspec.Struct, array_like=True):
    """One call as the provider saw it, in seconds of the machine's monotonic clock."""

    number: int
    arrived_s: float
    first_s: float | None = None  # when the first token was sent
    ended_s: float | None = None  # when the last one was, or the gateway hung up
    is_whole: bool = False


class Connection(Serving):
    """One connection; all write into ``log``."""

    def __init__(self, log: list[Seen]) -> None:
        super().__init__()
        self._log = log
        self._seen: Seen | None = None

    def lost(self) -> None:
        """Note that the gateway hung up."""
        self._end(is_whole=False)

    def answer(self, request: bytes) -> None:
        """Begin as the call says."""
        asked = _ASKED.search(request)
        if request.startswith(b"GET /_seen "):
            self._report()
        elif asked is None:
            self.write(response({}, "404 Not Found"))
        else:
            self._seen = Seen(int(asked[1]), time.monotonic())
            self._log.append(self._seen)
            self.after(FIRST_S, self._begin, int(asked[2]))

    def _begin(self, tokens: int) -> None:
        assert self._seen is not None
        self._seen.first_s = time.monotonic()
        self.write(STREAM_HEAD + framed(_delta({"role": "assistant", "content": ""}) + _delta({"content": " token"})))
        self.after(TOKEN_S * tokens, self._finish, tokens)

    def _finish(self, tokens: int) -> None:
        rest = _delta({"content": " token" * (tokens - 1)}) + event(_ANSWERING.chunk({}, "stop"))
        end = event(_ANSWERING.usage_chunk(usage(PROMPT_TOKENS, tokens))) + DONE
        self.write(framed(rest + end) + LAST_CHUNK)
        self._end(is_whole=True)

    def _end(self, *, is_whole: bool) -> None:
        if self._seen is not None:
            self._seen.ended_s, self._seen.is_whole = time.monotonic(), is_whole
        self._seen = None

    def _report(self) -> None:
        """Send what ended; what is under way is for the next time."""
        ended = [seen for seen in self._log if seen.ended_s is not None]
        self._log[:] = [seen for seen in self._log if seen.ended_s is None]
        self.write(response(msgspec.json.encode(ended)))


def _delta(delta: dict[str, str]) -> bytes:
    return event(_ANSWERING.chunk(delta))


if __name__ == "__main__":
    log: list[Seen] = []
    uvloop.run(serve(int(sys.argv[1]), lambda: Connection(log)))
