"""Who a connection is from, and who a proxy speaks for."""

from ipaddress import ip_address, ip_network

import pytest

from gateway.access import Trust, counted_as, read_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:5000", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
    ],
)
def test_an_address_is_read_as_accept_or_a_proxy_writes_it(text: str, address: str) -> None:
    assert read_address(text) == ip_address(address)


@pytest.mark.parametrize("text", ["", "unknown", "_hidden", "192.0.2", "example.com", "192.0.2.1, 192.0.2.2", "/run/x"])
def test_what_is_no_address_is_none(text: str) -> None:
    assert read_address(text) is None


def test_a_client_with_a_whole_network_of_ipv6_counts_as_one() -> None:
    assert counted_as(ip_address("2001:db8:1:2::1")) == counted_as(ip_address("2001:db8:1:2:ffff::9"))
    assert counted_as(ip_address("2001:db8:1:2::1")) != counted_as(ip_address("2001:db8:1:3::1"))
    assert counted_as(ip_address("192.0.2.1")) != counted_as(ip_address("192.0.2.2"))


@pytest.mark.parametrize(
    ("fields", "client"),
    [
        (["203.0.113.9"], "203.0.113.9"),
        (["6.6.6.6, 203.0.113.9"], "203.0.113.9"),  # what stands before is the client's own word
        (["6.6.6.6, 203.0.113.9, 10.1.2.3"], "203.0.113.9"),  # one trusted proxy behind another
        (["6.6.6.6", "203.0.113.9,10.1.2.3"], "203.0.113.9"),
        (["203.0.113.9, unknown"], None),
        (["10.1.2.3"], None),
        ([""], None),
        ([], None),
    ],
)
def test_a_proxys_client_is_the_last_address_that_is_no_proxys(fields: list[str], client: str | None) -> None:
    trust = Trust((ip_network("10.0.0.0/8"), ip_network("fd00::/8")))
    assert trust.client(fields) == (None if client is None else ip_address(client))


def test_only_who_is_configured_is_trusted() -> None:
    trust = Trust((ip_network("10.0.0.0/8"), ip_network("fd00::/8")))
    assert trust.trusts(ip_address("10.9.9.9"))
    assert trust.trusts(ip_address("fd00::1"))
    assert not trust.trusts(ip_address("11.0.0.1"))
    assert not Trust(()).trusts(ip_address("127.0.0.1"))
