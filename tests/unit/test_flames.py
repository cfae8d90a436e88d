"""From sampled stacks to shares and a flame graph."""

from xml.etree import ElementTree as ET

import pytest

from tools.flames import WIDTH, drawn, folded, shares, summary

LINES = [
    "main (app.py:1);uv_run (core.c:464);serve (site-packages/room/app.py:10);encode (app.py:3) 6",
    "main (app.py:1);uv_run (core.c:464);serve (site-packages/room/app.py:12) 2",
    "main (app.py:1);uv_run (core.c:464);epoll_wait (libc.so.6) 90",
    "thread (a.py:1);PyThread_acquire_lock_timed (libc.so.6);0x7f (libc.so.6) 50",
]


def test_stacks_begin_at_the_event_loop_and_what_waits_is_left_out() -> None:
    loop = "uv_run (core.c)"

    assert folded(LINES) == {
        (loop, "serve (room/app.py)", "encode (app.py)"): 6,
        (loop, "serve (room/app.py)"): 2,
    }


def test_a_functions_own_time_is_what_it_did_not_spend_in_others() -> None:
    encode, serve, loop = shares(folded(LINES))

    assert (encode.where, encode.own, encode.whole) == ("encode (app.py)", 0.75, 0.75)
    assert (serve.where, serve.own, serve.whole) == ("serve (room/app.py)", 0.25, 1.0)
    assert (loop.own, loop.whole) == (0.0, 1.0)
    assert "  75.0%   75.0%  encode (app.py)" in list(summary([encode, serve, loop]))


def test_a_function_that_calls_itself_is_counted_once_in_a_sample() -> None:
    (found,) = shares(folded(["loop (a.py:1);loop (a.py:1) 4"]))

    assert (found.own, found.whole) == (1.0, 1.0)


def test_a_flame_graph_has_a_box_for_each_function_as_wide_as_its_share() -> None:
    root = ET.fromstring(drawn(folded([*LINES, "uv_run (core.c:1);<lambda> (a.py:2) 8"]), "all & more"))
    groups = root.findall("{*}g")
    widths = {
        (group.findtext("{*}title") or "").partition(":")[0]: float(rect.attrib["width"])
        for group in groups
        if (rect := group.find("{*}rect")) is not None
    }

    assert widths == pytest.approx(
        {
            "all & more": WIDTH,
            "uv_run (core.c)": WIDTH,
            "<lambda> (a.py)": WIDTH / 2,
            "serve (room/app.py)": WIDTH / 2,
            "encode (app.py)": WIDTH * 6 / 16,
        }
    )
