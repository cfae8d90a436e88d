"""A target: which share of which calls is to be answered, how soon and how fast. docs/targets.md has the rules."""

import hashlib
from datetime import timedelta

import msgspec


class Definition(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which calls a target is about, and which of them are good. None: any, or no such condition.

    ``ttft_ms``: the first token comes sooner. ``tok_s``: the answer is at least so fast after it, by the tokens that
    the provider counts. ``gap_ms``: no two chunks are further apart, or no pause of speech is longer. A good call
    fulfils all of them, and is answered.
    """

    model: str | None = None  # as the client named it
    client: str | None = None
    profile: str | None = None
    ttft_ms: float | None = None
    tok_s: float | None = None
    gap_ms: float | None = None

    @property
    def key(self) -> str:
        """Return a name for what is counted by it: it changes when the counts would."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:32]

    @property
    def has_conditions(self) -> bool:
        """Whether good calls are more than answered ones."""
        return self.ttft_ms is not None or self.tok_s is not None or self.gap_ms is not None


class Target(msgspec.Struct, frozen=True):
    """A definition, and the share of its calls (above 0, below 1) that are to be good in each ``days`` days."""

    name: str
    definition: Definition
    objective: float
    days: int = 28

    @property
    def window(self) -> timedelta:
        """Over how long it is kept or missed."""
        return timedelta(days=self.days)
