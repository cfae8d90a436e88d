"""Conditions: what a source sees that somebody should know, at one instant."""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

Figure = float | int | str | None


class Severity(StrEnum):
    """How soon somebody should look."""

    PAGE = "page"  # now
    TICKET = "ticket"  # within a working day


class Kind(StrEnum):
    """What an alert is about."""

    BURN_FAST = "burn_fast"  # a target's error budget is used up within days
    BURN_SLOW = "burn_slow"  # … within its window
    MODEL_OUT = "model_out"  # no deployment of a model can answer
    DEPLOYMENT_OUT = "deployment_out"
    SPENDING = "spending"
    LEDGER_BEHIND = "ledger_behind"
    SPOOL = "spool"
    SLOWER = "slower"  # a deployment got slower


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong now. ``key`` names the incident: the same one in every replica and after a restart."""

    kind: Kind
    subject: str  # the target, model, deployment, client or replica
    severity: Severity
    summary: str  # one sentence
    figures: Mapping[str, Figure]
    sql: str  # one statement that shows the evidence in ``holeshot sql``
    after_s: float = 0.0  # it opens an alert only when it was seen for so long
    opens: bool = True  # False: it only keeps an alert open that is open already
    # Not opened while an alert with this key is open, or was within so many seconds: it would say the same again.
    covered_by: str | None = None
    covered_s: float = 0.0

    @property
    def key(self) -> str:
        """The incident's name."""
        return key_of(self.kind, self.subject)


def key_of(kind: Kind, subject: str) -> str:
    """Return the name of an incident."""
    return f"{kind}:{subject}"


class SourceUnavailable(Exception):
    """A source cannot say what is wrong now: alerts of its kinds are neither opened nor resolved."""


class Source(Protocol):
    """Sees conditions."""

    @property
    def kinds(self) -> Collection[Kind]:
        """The kinds of which it reports every condition there is."""

    async def conditions(self) -> Sequence[Condition]:
        """Return the conditions that hold now.

        Raises:
            SourceUnavailable: it cannot tell now.

        """
