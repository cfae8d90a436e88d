from benchmarks.steering.shared_board import SharedBoard, Store
from gateway.steering import STRIKES, Strikes

NOW_S = 1_767_225_600.0


def test_a_replica_knows_its_own_counts_at_once_and_those_of_others_after_both_have_synced() -> None:
    store = Store()
    one, other = SharedBoard(store), SharedBoard(store)
    one.add("model", {"a|n": 1.0}, NOW_S)
    assert one.counts("model", NOW_S, half_life_s=120.0) == {"a|n": 1.0}
    other.sync(NOW_S + 0.5)
    assert other.counts("model", NOW_S + 0.5, half_life_s=120.0) == {}
    one.sync(NOW_S + 1.0)
    other.sync(NOW_S + 1.5)
    assert other.counts("model", NOW_S + 1.5, half_life_s=120.0) == {"a|n": 1.0}
    assert one.counts("model", NOW_S + 1.5, half_life_s=120.0) == {"a|n": 1.0}


def test_its_version_changes_only_with_its_counts() -> None:
    store = Store()
    one, other = SharedBoard(store), SharedBoard(store)
    before = other.version("model", NOW_S)
    other.sync(NOW_S)
    assert other.version("model", NOW_S) == before
    one.add("model", {"a|n": 1.0}, NOW_S)
    one.sync(NOW_S)
    other.sync(NOW_S)
    assert other.version("model", NOW_S) > before


def test_strikes_travel_with_the_counts() -> None:
    store = Store()
    shared = [Strikes(lambda: NOW_S) for _ in range(3)]
    boards = [SharedBoard(store, each) for each in shared]
    heeded: list[str] = []
    shared[2].listen(heeded.append)
    for each in shared[:2]:
        each.struck("a", "a", opened=True)
        each.answered("b", "b")
    for board in boards[:1]:
        board.sync(NOW_S)
    boards[2].sync(NOW_S)
    assert heeded == []
    for board in boards[1:]:
        board.sync(NOW_S)
    assert heeded == ["a"]
    assert shared[0].report().strikes["a"].count == STRIKES
