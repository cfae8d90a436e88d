from functools import partial

from benchmarks.steering.timeline import Timeline


def test_what_is_to_happen_in_simulated_time_happens_in_order() -> None:
    timeline, called = Timeline(), list[tuple[float, str]]()

    def call(name: str) -> None:
        called.append((timeline.now_s, name))

    late = timeline.after(2.0, partial(call, "late"))
    timeline.after(1.0, partial(call, "first of two"))
    timeline.after(1.0, partial(call, "second of two"))
    timeline.after(-1.0, partial(call, "overdue"))
    timeline.after(1.5, late.cancel)
    assert late.when() == 2.0
    timeline.run()
    assert called == [(0.0, "overdue"), (1.0, "first of two"), (1.0, "second of two")]
    assert timeline.now_s == 1.5
