"""Which proxy the environment names, for which origin."""

import pytest

from providers.http.dialing import Proxy, proxy_of


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def test_without_a_word_there_is_none() -> None:
    assert proxy_of("https", "api.example") is None


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy"])
def test_each_scheme_has_its_own(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "http://proxy.example:3128")
    assert proxy_of("https", "api.example") == Proxy("http", "proxy.example", 3128)
    assert proxy_of("http", "api.example") is None


@pytest.mark.parametrize(
    ("value", "proxy"),
    [
        ("proxy.example:3128", Proxy("http", "proxy.example", 3128)),
        ("http://proxy.example", Proxy("http", "proxy.example", 80)),
        ("https://proxy.example", Proxy("https", "proxy.example", 443)),
        ("http://[::1]:3128/", Proxy("http", "::1", 3128)),
        ("http://user@proxy.example:1", Proxy("http", "proxy.example", 1, "Basic dXNlcjo=")),
        ("http://user:p%40s%3As@proxy.example:1", Proxy("http", "proxy.example", 1, "Basic dXNlcjpwQHM6cw==")),
    ],
)
def test_a_proxy_is_an_address_and_perhaps_a_user(monkeypatch: pytest.MonkeyPatch, value: str, proxy: Proxy) -> None:
    monkeypatch.setenv("HTTP_PROXY", value)
    assert proxy_of("http", "api.example") == proxy


@pytest.mark.parametrize("value", ["socks5://proxy.example:1080", "http://", "http://:3128", "ftp://proxy.example"])
def test_what_cannot_be_used_is_an_error(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", value)
    with pytest.raises(ValueError, match="HTTPS_PROXY"):
        proxy_of("https", "api.example")


@pytest.mark.parametrize("port", ["0x1", "70000", "-1"])
def test_a_port_that_is_none_is_an_error(monkeypatch: pytest.MonkeyPatch, port: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://proxy.example:{port}")
    with pytest.raises(ValueError, match="port in HTTPS_PROXY"):
        proxy_of("https", "api.example")


@pytest.mark.parametrize(
    ("listed", "host", "direct"),
    [
        ("api.example", "api.example", True),
        ("api.example", "www.api.example", True),
        (".example", "api.example", True),
        ("api.example", "myapi.example", False),
        ("other.example, api.example", "api.example", True),
        ("*", "api.example", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("::1", "::1", True),
        ("", "api.example", False),
    ],
)
def test_no_proxy_is_obeyed(monkeypatch: pytest.MonkeyPatch, listed: str, host: str, direct: bool) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", listed)
    assert (proxy_of("https", host) is None) is direct


def test_a_password_shows_in_no_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://user:secret@proxy.example:1")
    assert repr(proxy_of("http", "api.example")) == "Proxy(url='http://proxy.example:1')"


def test_a_systems_own_settings_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As macOS has them: a forked process that asks for them may crash."""
    monkeypatch.setattr("providers.http.dialing.getproxies", lambda: {"https": "http://other:1"}, raising=False)
    assert proxy_of("https", "api.example") is None
