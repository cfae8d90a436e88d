"""Requests as they are written: once for all calls, and only what cannot split a message."""

import pytest

from providers.http import Head, checked
from providers.http.message import rendered


def head(method: str = "POST", target: str = "/v1/chat?a=b", headers: dict[str, str] | None = None) -> Head:
    return Head(method, "https", "api.example:8443", target, headers or {}, absolute=False)


def test_a_head_is_its_request_line_host_and_fields() -> None:
    made = head(headers={"Authorization": "Bearer k", "X-Name": "café"})
    assert made.http1 == (
        b"POST /v1/chat?a=b HTTP/1.1\r\nhost: api.example:8443\r\nauthorization: Bearer k\r\nx-name: caf\xc3\xa9\r\n"
    )


def test_a_proxy_is_told_the_whole_url() -> None:
    made = Head("GET", "http", "api.example", "/v1/models", {}, absolute=True)
    assert made.http1 == b"GET http://api.example/v1/models HTTP/1.1\r\nhost: api.example\r\n"


@pytest.mark.parametrize("method", ["", "GET /", "GET\r\n", "GÉT", "GET\0"])
def test_a_method_that_is_no_word_is_refused(method: str) -> None:
    with pytest.raises(ValueError, match="request line"):
        head(method)


@pytest.mark.parametrize("target", ["", "v1", "/a b", "/a\r\nx: y", "/a\nx", "/a\tb", "/é", "/\0", "http://elsewhere/"])
def test_a_target_that_could_split_the_message_is_refused(target: str) -> None:
    with pytest.raises(ValueError, match="request line"):
        head(target=target)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-a", "1\r\nx-b: 2"),
        ("x-a", "1\n"),
        ("x-a", "1\r"),
        ("x-a", "1\0"),
        ("x-a", "1\x7f"),
        ("x-a", "1\x85"),
        ("x-a", "1\u2028"),
        ("", "1"),
        ("x a", "1"),
        ("x:a", "1"),
        ("x\r\na", "1"),
        ("é", "1"),
        ("-", "1"),
    ],
)
def test_a_field_that_could_split_the_message_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        checked({name: value})


@pytest.mark.parametrize("name", ["Host", "content-length", "Transfer-Encoding", "connection", "TE", "keep-alive"])
def test_what_is_the_connections_own_business_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        checked({name: "1"})


def test_fields_are_lower_case_and_trimmed() -> None:
    assert checked({"X-A_b.c": " 1 "}) == ((b"x-a_b.c", b"1"),)
    assert rendered([(b"a", b"1"), (b"b", b"")]) == b"a: 1\r\nb: \r\n"
