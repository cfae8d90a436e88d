"""Since when most calls of a model have fewer attempts than asked for, and why: told once in the log, and on pages.

The router keeps this state, and the leaderboard shows it, as this process has seen the model's calls.
"""

from collections import deque
from collections.abc import Callable, Container, Sequence
from datetime import UTC, datetime

import msgspec

from gateway.core.attempts import Narrowed
from gateway.core.calls import CallRecord
from gateway.core.log import get_logger

RECENT = 20  # calls that could have been narrowed; racing is narrowed if half of them were, for one reason
FEWEST = 5  # narrowed calls, so that nothing is told after one or two
ENDS_AFTER_S = 60.0  # so long fewer than half must be narrowed; else calls that alternate would be logged one by one
FEW = RECENT // 4  # at most so many recent calls are narrowed when it ends: a minute of a quiet model has few

# Reasons that requests or the policy give on purpose: the operator has nothing to do.
_EXPECTED = {
    Narrowed.STATEFUL, Narrowed.LONG_PROMPT, Narrowed.UNFIT, Narrowed.DIFFERS, Narrowed.ORDERED, Narrowed.PROBE,
    Narrowed.NO_RIVAL_WORTH_IT,
}  # fmt: skip


class Narrowing(msgspec.Struct, frozen=True):
    """Most calls of a model have fewer attempts than asked for."""

    reason: Narrowed
    since: datetime  # the first of these calls
    why: str  # in words


class _Recent:
    """The latest calls of a model that could have been narrowed, and the reason that was logged for them."""

    __slots__ = ("held_at_s", "reasons", "told", "unix_s")

    def __init__(self) -> None:
        self.reasons: deque[Narrowed | None] = deque(maxlen=RECENT)
        self.unix_s: deque[float] = deque(maxlen=RECENT)
        self.told: tuple[Narrowed, datetime] | None = None  # the reason, and since when
        self.held_at_s = 0.0  # when half of the calls were last narrowed for the logged reason


class Narrowings:
    """The state of each model. ``due_to`` returns the deployments that a model's calls are narrowed by, if known."""

    def __init__(
        self,
        due_to: Callable[[str, Narrowed], Sequence[str]],
        *,
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
    ) -> None:
        self._due_to = due_to
        self._clock = clock
        self._unix_clock = unix_clock
        self.models: dict[str, _Recent] = {}  # models with a recent call that was narrowed

    def call_finished(self, record: CallRecord) -> None:
        """Count a call; log when the state of its model changes."""
        model, reason = record.answered_model or record.model, record.narrowed
        recent = self.models.get(model)
        if recent is None:
            if reason is None:  # the usual case
                return
            recent = self.models[model] = _Recent()
        now_s = self._clock()
        if reason is not None or (record.width_asked or 1) > 1:
            recent.reasons.append(reason)
            recent.unix_s.append(self._unix_clock())
        if reason is not None and recent.reasons.count(reason) >= max(FEWEST, len(recent.reasons) / 2):
            self._narrowed(model, recent, reason, now_s)
        elif (
            recent.told is not None
            and now_s - recent.held_at_s >= ENDS_AFTER_S
            and recent.reasons.count(recent.told[0]) <= FEW
        ):
            self._widened(model, recent)
        if recent.told is None and not any(recent.reasons):
            del self.models[model]

    def of(self, model: str) -> Narrowing | None:
        """Return the state of a model; None: its calls are not narrowed, or it had no call for a minute."""
        recent = self.models.get(model)
        if recent is None or recent.told is None or self._clock() - recent.held_at_s >= ENDS_AFTER_S:
            return None
        reason, since = recent.told
        return Narrowing(reason, since, self._why(model, reason))

    def keep(self, models: Container[str]) -> None:
        """Forget all other models."""
        self.models = {model: recent for model, recent in self.models.items() if model in models}

    def _narrowed(self, model: str, recent: _Recent, reason: Narrowed, now_s: float) -> None:
        counts = recent.told
        if counts is not None and counts[0] is not reason and now_s - recent.held_at_s < ENDS_AFTER_S:
            return
        if counts is None or counts[0] is not reason:
            since = datetime.fromtimestamp(recent.unix_s[recent.reasons.index(reason)], UTC)
            recent.told = reason, since
            facts = {"model": model, "reason": reason, "since": since.isoformat(), "why": self._why(model, reason)}
            # Event race.narrowed: Since `since` most calls of `model` have fewer attempts than their mode, width and
            # budget ask for; `reason` is a value of `calls.narrowed`, and `why` says it in words. A warning where a
            # limit or a fault is the reason.
            # Do: Raise the limit that is named, if you want ([reasons](../policy.md#fewer-attempts)).
            if reason in _EXPECTED:
                get_logger().info("race.narrowed", **facts)
            else:
                get_logger().warning("race.narrowed", **facts)
        recent.held_at_s = now_s

    def _widened(self, model: str, recent: _Recent) -> None:
        assert recent.told is not None
        reason, since = recent.told
        recent.told = None
        # Event race.widened: For a minute most calls of `model` were not narrowed by `reason` any more.
        # Do: Nothing.
        get_logger().info("race.widened", model=model, reason=reason, since=since.isoformat())

    def _why(self, model: str, reason: Narrowed) -> str:
        names = self._due_to(model, reason)
        return reason.in_words(f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'}" if names else None)
