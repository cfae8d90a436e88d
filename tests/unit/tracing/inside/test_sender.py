"""The queue of spans: bounded, counted, and given up when a collector does not answer."""

import threading
from collections.abc import Sequence
from random import Random

import pytest

from gateway.core.ids import begun_here
from gateway.tracing import tracing
from gateway.tracing.naming import Ended, EndedCall
from gateway.tracing.tracing import TraceSender
from tests.patience import PATIENCE_S
from tests.support.recorded import deployments, races


class FakeExporter:
    """Takes everything, or answers with ``problem``."""

    def __init__(self, problem: str | None = None) -> None:
        self.is_failing = False
        self.rejected: tuple[int, str] | None = None
        self.taken: list[Ended] = []
        self.asked = threading.Event()
        self.shut_down = threading.Event()
        self._problem = problem

    def export(self, ended: Sequence[Ended]) -> str | None:
        self.taken += ended
        self.asked.set()
        return self._problem

    def hurry(self) -> None:
        """There is nothing to hurry."""

    def shutdown(self) -> None:
        self.shut_down.set()


def calls(number: int) -> list[EndedCall]:
    return [
        EndedCall(record, begun_here(record.id, 1.0), (1.0, 1.0))
        for _, record in races(number, Random(1), deployments(2))
    ]


async def test_what_is_queued_is_exported_at_the_end_in_order() -> None:
    exporter = FakeExporter()
    queue, ended = TraceSender(exporter), calls(300)
    queue.start()
    for each in ended:
        queue.offer(each)
    await queue.close()
    assert exporter.taken == ended
    assert queue.dropped == 0
    assert exporter.shut_down.is_set()
    queue.offer(ended[0])
    assert queue.dropped == 3  # a call and two attempts: nobody takes them any more


async def test_what_does_not_fit_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "QUEUED", 10)
    exporter = FakeExporter()
    queue = TraceSender(exporter)
    for each in calls(12):
        queue.offer(each)
    assert queue.dropped == 2 * 3
    queue.start()
    await queue.close()
    assert len(exporter.taken) == 10


async def test_after_a_failure_the_end_waits_for_nothing() -> None:
    exporter = FakeExporter("it is away")
    queue = TraceSender(exporter)
    queue.start()
    for each in calls(tracing.BATCH + 5):
        queue.offer(each)
    assert exporter.asked.wait(PATIENCE_S)
    await queue.close()
    assert len(exporter.taken) == tracing.BATCH
    assert queue.dropped == (tracing.BATCH + 5) * 3
