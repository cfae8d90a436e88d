"""Recollection: converts sums of the ledger into counts of the board, for the memory of the time before the start."""

from collections.abc import Iterable

from gateway.calls import HourlySum
from gateway.prompt_classes import MeasuredApi
from gateway.steering.board import slot_of
from gateway.steering.evidence import event
from gateway.steering.histogram import mid_s
from gateway.steering.sizing import Sizing, size_of
from gateway.steering.snapshots import Snapshots
from gateway.steering.tally import Counts


def recollect(snapshots: Snapshots, sums: Iterable[HourlySum]) -> int:
    """Add ``sums`` to the memory; return the number of models.

    The prompt sizes are no longer known: each class is taken to have its usual one. Each speed counts as one second
    of decoding.
    """
    usual = Sizing()
    by_hour: dict[tuple[str, int], Counts] = {}
    for each in sums:
        counts = by_hour.setdefault((each.model, slot_of(each.unix_s)), {})
        if each.metric == "ttft":
            reference_s = mid_s(each.bucket) / usual.factor(size_of(None, max(0, each.size_class)))
            _add(counts, event(each.deployment, MeasuredApi.ANSWERS, 0, reference_s), each.n)
        elif each.metric == "tps":
            tok_s = 1000 * mid_s(each.bucket)  # buckets are of milliseconds, or of tok/s
            _add(counts, f"{each.deployment}|tok", tok_s * each.n)
            _add(counts, f"{each.deployment}|sec", each.n)
        else:
            _add(counts, f"{each.deployment}|{each.metric}", each.n)
    for (model, slot), counts in sorted(by_hour.items(), key=lambda item: item[0][1]):
        snapshots.remember(model, counts, slot)
    return len({model for model, _ in by_hour})


def _add(counts: Counts, field: str, amount: float) -> None:
    counts[field] = counts.get(field, 0.0) + amount
