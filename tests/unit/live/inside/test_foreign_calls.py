"""What other processes publish: who is told of it here."""

import asyncio

from gateway.live import Viewer, Wanted
from gateway.live.events import Gap, ProcessFilter, frame
from gateway.live.hub import Hub
from gateway.live.sharing import ForeignCalls


async def test_a_gap_elsewhere_is_told_to_those_who_look_here_and_not_published_again() -> None:
    hub, loop = Hub(), asyncio.get_running_loop()
    looks = Viewer(Wanted(), hub.running, loop=loop)
    publishes = Viewer(ProcessFilter(worker="here"), hub.running, loop=loop)
    for viewer in (looks, publishes):
        hub.add(viewer)
    ForeignCalls(hub, worker="here", clock=lambda: 0.0).take(f"there\n{frame(Gap(dropped=1)).decode()}")
    assert looks.take_events() == [frame(Gap(dropped=1))]
    assert publishes.take_events() == []
