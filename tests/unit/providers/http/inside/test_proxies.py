"""Which proxy the environment names, for which origin."""

import pytest

from providers.http import dialing, not_understood, proxy_of
from providers.http.dialing import Proxy


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
        (".api.example", "api.example", True),  # as curl; not Go
        ("api.example", "myapi.example", False),
        ("API.Example", "api.example", True),
        ("api.example", "API.EXAMPLE.", True),
        ("api.example.", "api.example", True),
        ("bücher.example", "xn--bcher-kva.example", True),
        ("xn--bcher-kva.example", "bücher.example", True),
        ("model_server", "model_server", True),
        ("*.api.example", "www.api.example", True),
        ("*.api.example", "a.b.api.example", True),
        ("*.api.example", "api.example", False),  # as Go; curl does not read it
        ("*.api.example", "wwwapi.example", False),
        ("other.example, api.example", "api.example", True),
        ("other.example api.example", "api.example", True),
        (" other.example\t,\n api.example ,", "api.example", True),
        ("*", "api.example", True),
        ("other.example,*", "api.example", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "1.127.0.0.1", False),
        ("10.0.0.0/8", "10.255.0.1", True),
        ("10.0.0.5/8", "10.255.0.1", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.0.0.0/8", "10.0.0.1.example", False),
        ("10.0.0.0/8", "ten.example", False),
        ("0.0.0.0/0", "::1", False),
        ("10.0.0.0/8", "::ffff:10.0.0.1", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::1", "::1", True),
        ("[::1]", "::1", True),
        ("0:0:0:0:0:0:0:1", "::1", True),
        ("FD00::/8", "fd12:3456::1", True),
        ("fd00::/8", "fe80::1", False),
        ("fe80::/10", "fe80::1%eth0", True),
        ("", "api.example", False),
    ],
)
def test_no_proxy_is_obeyed(monkeypatch: pytest.MonkeyPatch, listed: str, host: str, direct: bool) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", listed)
    assert (proxy_of("https", host) is None) is direct
    assert not_understood() == []


@pytest.mark.parametrize(
    ("listed", "host", "port", "direct"),
    [
        ("api.example:8000", "api.example", 8000, True),
        ("api.example:8000", "www.api.example", 8000, True),
        ("api.example:8000", "api.example", 8001, False),
        ("api.example:443", "api.example", None, True),
        ("api.example:80", "api.example", None, False),
        ("*.api.example:8000", "www.api.example", 8000, True),
        (".example:8000", "api.example", 8001, False),
        ("10.0.0.5:8000", "10.0.0.5", 8000, True),
        ("10.0.0.5:8000", "10.0.0.5", 443, False),
        ("[::1]:8000", "::1", 8000, True),
        ("[::1]:8000", "::1", 8001, False),
        ("api.example:8000,api.example:8001", "api.example", 8001, True),
    ],
)
def test_no_proxy_may_name_a_port(
    monkeypatch: pytest.MonkeyPatch, listed: str, host: str, port: int | None, direct: bool
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", listed)
    assert (proxy_of("https", host, port) is None) is direct
    assert not_understood() == []


@pytest.mark.parametrize(
    "entry",
    [
        "http://api.example", "http://api.example:8000/v1", "api.example/v1", "*example", "vllm-*.example", "*:8000",
        "*.*.example", ".", "*.", "..example", "a..b", "10.", "10", "10.0", "10.0.0.*", "10.0.0.0-10.0.0.9", "10/8",
        "10.0.0.0/33", "10.0.0.0/255.0.0.0", "10.0.0.256", "10.0.0.0/8:8000", "fd00::/129", "[fd00::/8]", "[::1",
        "[api.example]:80", "api.example:", "api.example:http", "api.example:0", "api.example:70000", "<local>",
        "a.example;b.example", '"a.example"', "a|b",
    ],
)  # fmt: skip
def test_an_entry_that_is_not_understood_is_named_and_spares_nothing(
    monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", f"intranet.example, {entry}")
    assert not_understood() == [entry]
    assert proxy_of("https", "intranet.example") is None
    for host in ("api.example", "b.example", "10.0.0.1", "::1"):
        assert proxy_of("https", host, 8000) is not None


def test_without_a_proxy_there_is_nothing_to_understand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "10.")
    assert not_understood() == []


def test_what_might_be_a_password_in_no_proxy_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "http://user:secret@proxy.example user:secret@proxy sk-proj-1234567890abcdef;x")
    assert "secret" not in str(not_understood())
    assert "1234567890" not in str(not_understood())
    assert len(not_understood()) == 3


def test_a_password_shows_in_no_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://user:secret@proxy.example:1")
    assert repr(proxy_of("http", "api.example")) == "Proxy(url='http://proxy.example:1')"


def test_a_systems_own_settings_are_not_asked() -> None:
    """As macOS has them: a forked process that asks for them may crash."""
    assert not {"getproxies", "proxy_bypass"} & vars(dialing).keys()
