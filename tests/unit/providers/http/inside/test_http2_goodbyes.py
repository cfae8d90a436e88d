"""How connections and exchanges end before their time, and which requests may be sent again."""

import pytest

from providers.http import Response
from providers.http.message import Unsent
from providers.refusals import ErrorKind, UpstreamError
from tests.unit.providers.http.inside.h2_server import Server, data, frame, goaway, headers, post, reset, settings

LAST = 2**31 - 1


def broke(server: Server, response: Response) -> str:
    """Return the words of a disconnect."""
    error = server.outcome(response).error
    assert isinstance(error, UpstreamError)
    assert error.kind == ErrorKind.DISCONNECTED
    return error.message


def unsent(server: Server, response: Response) -> bool:
    return isinstance(server.outcome(response).error, Unsent)


def test_goaway_fails_what_the_server_did_not_begin_with_and_the_rest_goes_on() -> None:
    server = Server()
    first, second, third = (server.client.send(post()) for _ in range(3))
    server.heard()
    server.say(headers(1), goaway(3))
    assert unsent(server, third)
    assert (server.client.room, server.client.alive(), server.client.streams) == (0, False, 2)
    assert server.owner.heard == ["gone"]
    server.say(data(1, b"one", end=True), headers(3), data(3, b"two", end=True))
    assert server.outcome(first) == (200, b"one", None)
    assert server.outcome(second) == (200, b"two", None)
    assert server.wire.aborted
    assert server.owner.heard == ["gone"]


def test_goaway_in_two_steps_loses_nothing() -> None:
    server = Server()
    first, second = server.client.send(post()), server.client.send(post())
    server.say(goaway(LAST))
    assert (server.client.room, server.client.streams) == (0, 2)
    server.say(goaway(1))
    assert unsent(server, second)
    server.say(headers(1, end=True))
    assert server.outcome(first) == (200, b"", None)
    assert server.wire.aborted


def test_goaway_on_an_idle_connection_closes_it() -> None:
    server = Server()
    server.exchange()
    server.say(goaway(1))
    assert server.failed_with(0)
    assert server.owner.heard == ["freed", "gone"]


def test_goaway_with_words_and_an_error_names_the_error() -> None:
    server = Server()
    first, second = server.client.send(post()), server.client.send(post())
    server.say(headers(1), goaway(3, 11, b"too many cats"))
    server.client.connection_lost(None)
    assert broke(server, first) == "the provider gave up the connection (ENHANCE_YOUR_CALM)"
    assert broke(server, second) == "the provider gave up the connection (ENHANCE_YOUR_CALM)"


def test_a_code_nobody_knows_is_named_by_its_number() -> None:
    server = Server()
    response = server.client.send(post())
    server.say(reset(1, 0xBEEF))
    assert "(code 0xbeef)" in broke(server, response)


def test_a_refused_stream_was_never_sent() -> None:
    server = Server()
    response = server.client.send(post())
    server.say(reset(1, 7))
    assert unsent(server, response)
    assert server.client.room == 16


def test_a_stream_that_was_begun_cannot_be_refused() -> None:
    server = Server()
    response = server.client.send(post())
    server.say(headers(1), reset(1, 7))
    assert "REFUSED_STREAM" in broke(server, response)


@pytest.mark.parametrize(("code", "name"), [(0, "NO_ERROR"), (2, "INTERNAL_ERROR"), (8, "CANCEL"), (11, "ENHANCE")])
def test_a_reset_before_the_end_is_a_disconnect_that_names_its_code(code: int, name: str) -> None:
    server = Server()
    response, other = server.client.send(post()), server.client.send(post())
    server.say(reset(1, code))
    assert name in broke(server, response)
    server.say(headers(3), data(3, b"x"), reset(3, code))
    outcome = server.outcome(other)
    assert (outcome.status, outcome.body) == (200, b"x")
    assert "in the middle of" in broke(server, other)
    assert name in broke(server, other)
    server.exchange()


def test_a_reset_after_the_end_changes_nothing() -> None:
    server = Server()
    response = server.client.send(post())
    server.say(headers(1, end=True), reset(1, 0))
    assert server.outcome(response) == (200, b"", None)


def test_what_runs_on_a_fresh_connection_that_is_lost_was_disconnected() -> None:
    server = Server()
    first, second = server.client.send(post()), server.client.send(post())
    server.say(headers(3), data(3, b"x"))
    server.client.connection_lost(ConnectionResetError(104, "Connection reset by peer"))
    assert broke(server, first) == "the connection broke ([Errno 104] Connection reset by peer)"
    assert broke(server, second) == "the connection broke in the middle of the answer"
    assert (server.client.streams, server.owner.heard) == (0, ["gone"])


def test_what_had_no_answer_on_a_kept_connection_that_is_lost_was_never_sent() -> None:
    server = Server()
    server.exchange()
    begun, informed, waiting = (server.client.send(post()) for _ in range(3))
    server.say(headers(3), headers(5, [(b":status", b"103")]))
    server.client.connection_lost(None)
    assert broke(server, begun) == "the connection broke in the middle of the answer"
    assert broke(server, informed) == "the connection was closed before the answer"
    assert unsent(server, waiting)


def test_a_goaway_that_only_warns_promises_no_answer() -> None:
    server = Server()
    server.exchange()
    response = server.client.send(post())
    server.say(goaway(LAST))
    server.client.connection_lost(None)
    assert unsent(server, response)


def test_what_the_server_promised_to_answer_is_not_sent_again() -> None:
    server = Server()
    server.exchange()
    response, graceful = server.client.send(post()), server.client.send(post())
    server.say(goaway(LAST))
    server.say(goaway(3))
    server.client.connection_lost(None)
    assert broke(server, response) == "the connection was closed before the answer"
    assert unsent(server, graceful)


def test_the_end_of_what_the_server_sends_is_the_end_of_all() -> None:
    server = Server()
    response = server.client.send(post())
    server.client.eof_received()
    assert server.wire.aborted
    assert broke(server, response) == "the connection was closed before the answer"
    assert server.owner.heard == ["gone"]


def test_a_connection_in_use_is_not_asked_whether_it_lives() -> None:
    server = Server()
    server.clock.pass_by(9.9)
    server.client.send(post())
    server.clock.pass_by(60)
    server.client.send(post())
    assert server.heard("PING") == []
    assert server.clock.timers == []


def test_a_connection_that_was_quiet_for_long_is_asked_along_with_the_request() -> None:
    server = Server()
    server.exchange()
    server.clock.pass_by(10.1)
    response = server.client.send(post())
    assert len(server.wire.writes) == 1
    assert [each.kind for each in server.heard()] == ["PING", "HEADERS", "DATA"]
    server.client.send(post())
    assert server.heard("PING") == []
    server.say(frame("PING", 0, bytes(8), 1))
    assert server.clock.timers == []
    server.clock.pass_by(60)
    server.say(headers(3), data(3, b"x", end=True))
    assert server.outcome(response) == (200, b"x", None)


def test_any_frame_is_an_answer() -> None:
    server = Server()
    server.clock.pass_by(11)
    response = server.client.send(post())
    server.say(settings())
    server.clock.pass_by(60)
    server.say(headers(1, end=True))
    assert server.outcome(response).status == 200


def test_a_connection_that_has_fallen_silent_is_dropped_and_its_requests_were_never_sent() -> None:
    server = Server()
    server.exchange()
    server.clock.pass_by(11)
    first = server.client.send(post())
    second = server.client.send(post())
    server.clock.pass_by(4.9)
    assert server.client.alive()
    server.clock.pass_by(0.2)
    assert unsent(server, first)
    assert unsent(server, second)
    assert server.wire.aborted
    assert server.owner.heard == ["freed", "gone"]


def test_no_timer_outlives_the_connection() -> None:
    server = Server()
    server.clock.pass_by(11)
    server.client.send(post())
    assert len(server.clock.timers) == 1
    server.client.close()
    assert server.clock.timers == []
    server = Server()
    server.clock.pass_by(11)
    server.client.send(post())
    server.client.connection_lost(None)
    assert server.clock.timers == []
