"""Who takes nothing of an answer, told from who is merely slow."""

from gateway.server.connections import StalledConnections


class Wire:
    def __init__(self, read_progress: int | None) -> None:
        self.read_progress = read_progress


def test_who_takes_nothing_is_found_when_the_time_is_over() -> None:
    stalled, wire = StalledConnections[Wire](), Wire(100)
    assert stalled.look([wire], 0.0, 60.0) == []
    assert stalled.look([wire], 59.0, 60.0) == []
    assert stalled.look([wire], 60.0, 60.0) == [wire]


def test_every_byte_that_is_taken_buys_the_whole_time() -> None:
    stalled, wire = StalledConnections[Wire](), Wire(100)
    for now_s in range(0, 600, 50):
        wire.read_progress = now_s
        assert stalled.look([wire], now_s, 60.0) == []
    assert stalled.look([wire], 609.0, 60.0) == []
    assert stalled.look([wire], 610.0, 60.0) == [wire]


def test_who_has_nothing_to_take_is_not_late_and_begins_anew() -> None:
    stalled, wire = StalledConnections[Wire](), Wire(100)
    stalled.look([wire], 0.0, 60.0)
    wire.read_progress = None
    assert stalled.look([wire], 70.0, 60.0) == []
    wire.read_progress = 100
    assert stalled.look([wire], 80.0, 60.0) == []


def test_who_has_gone_is_forgotten() -> None:
    stalled, wire = StalledConnections[Wire](), Wire(100)
    stalled.look([wire], 0.0, 60.0)
    stalled.look([], 30.0, 60.0)
    assert stalled.look([wire], 70.0, 60.0) == []
