"""Which calls count for a target, and which of them were bad: the rules of the view ``slo``, for any conditions.

Calls are ``c`` here, and the attempt that answered is ``w``, where it is needed.
"""

from collections.abc import Mapping

from gateway.ledger.reports.words import FAILED, OWN_FAULT, Words
from gateway.targets.target import Definition

# Only these have first tokens and speeds.
RACED = "c.endpoint in ('chat.completions', 'completions', 'messages', 'responses')"
GONE = "(c.status_code = 499 and c.ttft_ms is null)"  # the client left before its first token
COUNTED = ("calls", "bad", "failed", "late", "slow", "halting")  # the columns that ``sums`` gives


class Judging:
    """A definition as SQL."""

    def __init__(self, words: Words, definition: Definition) -> None:
        self._words = words
        self._definition = definition
        wanted = definition
        self._late = "false"
        if wanted.ttft_ms is not None:
            late, gave_up = f"c.ttft_ms >= {_figure(wanted.ttft_ms)}", f"c.total_ms >= {_figure(wanted.ttft_ms)}"
            self._late = f"coalesce({late} or ({GONE} and {gave_up}), false)"
        self._slow = "false"
        if wanted.tok_s is not None:
            self._slow = f"coalesce(w.tokens_source = 'reported' and w.decode_tps < {_figure(wanted.tok_s)}, false)"
        self._halting = "false"
        if wanted.gap_ms is not None:
            # Where an answer is spoken, only what a listener hears counts.
            gap = "coalesce(w.speech_pause_ms, w.itl_max_ms)"
            self._halting = f"coalesce({gap} > {_figure(wanted.gap_ms)}, false)"

    @property
    def needs_winner(self) -> bool:
        """Whether the attempt that answered must be beside its call."""
        return self._definition.tok_s is not None or self._definition.gap_ms is not None

    @property
    def counts(self) -> str:
        """What is true of calls that count."""
        known = f"{FAILED} or not {GONE}"
        if self._definition.ttft_ms is not None:
            known = f"{FAILED} or c.ttft_ms is not null or {self._late}"
        parts = [f"not {OWN_FAULT}", f"({known})"]
        if self._definition.has_conditions:
            parts.append(RACED)
        if self._definition.profile is not None:
            parts.append(f"coalesce(c.profile = {self._words.text(self._definition.profile)}, false)")
        return " and ".join(parts)

    @property
    def bad(self) -> str:
        """What is true of the bad ones among them."""
        causes = [FAILED, *(one for one in (self._late, self._slow, self._halting) if one != "false")]
        return f"{self.counts} and ({' or '.join(causes)})"

    @property
    def sums(self) -> Mapping[str, str]:
        """The counts of ``COUNTED``, as aggregates."""
        fine = f"{self.counts} and not {FAILED}"
        conditions = {
            "calls": self.counts,
            "bad": self.bad,
            "failed": f"{self.counts} and {FAILED}",
            "late": f"{fine} and {self._late}",
            "slow": f"{fine} and {self._slow}",
            "halting": f"{fine} and {self._halting}",
        }
        return {
            name: "0" if one.endswith("and false") else f"count(*) filter (where {one})"
            for name, one in conditions.items()
        }

    def scope(self, rows: str) -> str:
        """Return `` and …``: what is true of the ``rows`` (calls, or their sums) of the model and client."""
        asked = {"model": self._definition.model, "client": self._definition.client}
        return "".join(
            f" and {rows}.{name} = {self._words.text(value)}" for name, value in asked.items() if value is not None
        )

    @property
    def winner(self) -> str:
        """Return the join of the attempt that answered, if it is needed; on Postgres of its partitions only."""
        return f"\n  left join attempts as w on {self._is_winner}" if self.needs_winner else ""

    @property
    def winner_of_few(self) -> str:
        """Return the same for few calls at an unknown time, where Postgres would rather read all attempts."""
        if not self.needs_winner or not self._words.is_postgres:
            return self.winner
        return f"""
    left join lateral (
      select w.tokens_source, w.decode_tps, w.itl_max_ms, w.speech_pause_ms
      from attempts as w where {self._is_winner} limit 1
    ) as w on true"""  # noqa: S608 - our names

    @property
    def _is_winner(self) -> str:
        if not self._words.is_postgres:
            return "w.id = c.winner_attempt_id"
        near = "w.started_at >= c.started_at - interval '1 minute' and w.started_at < c.started_at + interval '1 day'"
        return f"w.id = c.winner_attempt_id and {near}"


def _figure(value: float) -> str:
    return repr(float(value))
