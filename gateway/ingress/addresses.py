"""Addresses of clients: what they are counted by, and who they are behind a trusted proxy."""

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_PORT = re.compile(r"^(?:\[(?P<v6>[^]]+)\]|(?P<v4>[0-9.]+))(?::[0-9]+)?$")
FORWARDED_FOR = "x-forwarded-for"
IPV6_PREFIX_BYTES = 8  # a /64 is what one customer, or one machine, is given


def read_address(text: str) -> Address | None:
    """Return the address that ``text`` says, as accept() or a proxy writes it; None if it says none.

    An IPv4 address in IPv6's clothes is an IPv4 address. A port after it, and a scope, are left out.
    """
    with_port = _PORT.match(text)
    plain = (with_port["v6"] or with_port["v4"]) if with_port else text
    try:
        address = ip_address(plain.partition("%")[0])
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def counted_as(address: Address) -> bytes:
    """Return what tells one client from another: an IPv4 address, or an IPv6 network of 64 bits."""
    return address.packed if isinstance(address, IPv4Address) else address.packed[:IPV6_PREFIX_BYTES]


class Trust:
    """The proxies whose word on who their client is counts."""

    def __init__(self, networks: Sequence[Network]) -> None:
        self.networks = networks

    def trusts(self, address: Address) -> bool:
        """Tell whether ``address`` is one of theirs."""
        return any(address in network for network in self.networks)

    def named(self, peer: str | None, forwarded_for: Sequence[str]) -> str | None:
        """Return the address to tell a human: the client's if ``peer`` is a proxy that names one, else ``peer``."""
        if not self.networks or peer is None:
            return peer
        address = read_address(peer)
        client = self.client(forwarded_for) if address is not None and self.trusts(address) else None
        return peer if client is None else str(client)

    def client(self, forwarded_for: Sequence[str]) -> Address | None:
        """Return who a proxy speaks for: the last address of its ``x-forwarded-for`` fields that is no proxy's.

        What stands before that was written by whoever that is, and proves nothing. None: nobody is named.
        """
        for text in reversed(",".join(forwarded_for).split(",")):
            address = read_address(text.strip())
            if address is None or not self.trusts(address):
                return address
        return None
