"""The attempts that lost: cut at the provider, by its own count, and rows in the ledger."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from benchmarks.fleet.course import Look, Observation, direct_provider


class Losers(msgspec.Struct, frozen=True):
    """The attempts that lost at one provider: as it saw them, and as the ledger has them."""

    provider: str
    requests: int  # that reached it
    attempts: int  # rows, and the calls made without a gateway
    cut_before_first_token: int
    lost: int  # rows, audited ones included
    cut_later: int
    superseded: int  # rows, without the audited ones, which are watched on purpose


def losers(look: Look, observations: Iterable[Observation]) -> list[Losers]:
    """Compare what the providers counted with the ledger's rows, before the faults."""
    direct = Counter(direct_provider(each.arm, each.number) for each in observations)
    found = []
    for provider, counts in look.provider_counts.items():
        rows = Counter[str]()
        for entry in look.entries:
            if entry.provider == provider:
                rows["attempts"] += entry.attempts
                if entry.outcome == "lost" or not entry.audited:
                    rows[entry.outcome] += entry.attempts
        found.append(
            Losers(
                provider=provider,
                requests=counts.get("requests", 0),
                attempts=rows["attempts"] + direct[provider],
                cut_before_first_token=counts.get("cut_before_first_token", 0),
                lost=rows["lost"],
                cut_later=counts.get("cut_after_first_token", 0),
                superseded=rows["superseded"],
            )
        )
    return found
