"""With ``win_on: valid``: when an answer may claim the win, and whether the first one could have been used.

An answer that begins with text claims with it. One that begins with a tool call, or that must be JSON, claims when it
is complete and without a flaw. What cannot be judged, and what is too long to be kept, is not taken for invalid.
"""

from collections.abc import Mapping, Sequence

from gateway.attempt_records import AnswerKind, AttemptRecord, Flaw, Invalid, Outcome
from gateway.calls import Call
from gateway.racing.answer_text import AnswerText
from gateway.racing.expected import expected
from gateway.racing.judging import CUT_SHORT, UNJUDGED, Judgement, judge
from gateway.racing.measurement import Measurement
from providers.errors import ErrorKind, UpstreamError

KEPT_BYTES = 4 * 2**20  # of events: 256 KB of text or arguments, a few characters in each
_SAID: Mapping[Flaw, str] = {
    Flaw.EMPTY: "the answer is empty",
    Flaw.TRUNCATED: "the answer is incomplete",
    Flaw.BAD_TOOL_CALL: "the arguments of a tool call are not JSON",
    Flaw.UNKNOWN_TOOL: "it calls a tool that was not offered",
    Flaw.BAD_JSON: "the answer is not the JSON that was asked for",
    Flaw.SCHEMA_MISS: "it does not match the schema",
    Flaw.REFUSAL: "the model refused",
}
# The least first: what a program can do with it.
_FLAWS = (
    Flaw.SCHEMA_MISS,
    Flaw.UNKNOWN_TOOL,
    Flaw.BAD_JSON,
    Flaw.BAD_TOOL_CALL,
    Flaw.TRUNCATED,
    Flaw.REFUSAL,
    Flaw.EMPTY,
)


class Validity:
    """Whether one answer may claim. ``judgement`` is set once it is complete."""

    __slots__ = ("_call", "_measurement", "_named", "_text", "judgement")

    def __init__(self, call: Call, measurement: Measurement, text: AnswerText | None) -> None:
        """``text`` is None unless the answer must be JSON."""
        self.judgement: Judgement = UNJUDGED
        self._call = call
        self._measurement = measurement
        self._text = text
        self._named = 0  # calls of offered tools

    def look(self, now: float, *, finished: bool, over: bool, kept_bytes: int) -> None:
        """Look at what has come until ``now``: ``finished`` with a finish reason, ``over`` with nothing to follow.

        Raises:
            UpstreamError: it calls a tool that was not offered, and its client wants no such answer.

        """
        measurement = self._measurement
        if measurement.valid_at is not None or self.judgement.judged_as is not None:
            return
        # Only the usage, which may follow, tells whose limit has cut it short.
        if not over and not (finished and measurement.reported.finish_reason not in CUT_SHORT):
            if self._is_text() or self._is_too_long(kept_bytes):
                measurement.valid_at = now
            elif self._calls_unknown_tool():
                self.judgement = Judgement(self._call.answer_kind, Flaw.UNKNOWN_TOOL)
                self.check()  # whatever follows does not mend it
        else:
            self.judgement = judge(self._call, Outcome.WON, measurement, self._text)
            if self.judgement.flaw is None:
                measurement.valid_at = now

    def check(self) -> None:
        """Check an answer that has ended.

        Raises:
            UpstreamError: it has a flaw, and its client wants no such answer.

        """
        if (flaw := self.judgement.flaw) is not None and self._call.invalid is Invalid.ERROR:
            raise UpstreamError(ErrorKind.INVALID_ANSWER, f"{flaw}: {_SAID[flaw]}")

    def _is_text(self) -> bool:
        measurement = self._measurement
        is_any = self._call.answer_kind is not AnswerKind.JSON
        is_other = measurement.reported.tool_calls is not None or measurement.reported.refused
        return is_any and measurement.answer_at is not None and not is_other

    def _calls_unknown_tool(self) -> bool:
        calls = self._measurement.reported.tool_calls
        if calls is None or len(calls.names) == self._named:
            return False
        new, self._named = calls.names[self._named :], len(calls.names)
        asked = expected(self._call.fields, self._call.dialect)
        return asked is not None and any(name not in asked.tools for name in new)

    def _is_too_long(self, kept_bytes: int) -> bool:
        tools = self._measurement.reported.tool_calls
        is_unknown = tools is not None and tools.is_too_long
        return is_unknown or kept_bytes > KEPT_BYTES or (self._text is not None and self._text.is_too_long)


def badness(flaw: Flaw | None) -> int:
    """Return the place of ``flaw`` among all: none is 0, the worst is last."""
    return 0 if flaw is None else 1 + _FLAWS.index(flaw)


def first_was_invalid(attempts: Sequence[AttemptRecord]) -> bool | None:
    """Whether the answer that began first has a flaw: it would have won with ``win_on: any``.

    None if no answer began, or if that one was cut before it could be judged.
    """
    began = [(each.launch_offset_ms + each.ttft_ms, each) for each in attempts if each.ttft_ms is not None]
    if not began:
        return None
    first = min(began, key=lambda one: one[0])[1]
    return None if first.judged_as is None else first.flaw is not None
