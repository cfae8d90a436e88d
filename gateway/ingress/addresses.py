"""Client addresses: how they are parsed and counted, and the client's address behind a trusted proxy."""

import re
from collections.abc import Hashable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_PORT = re.compile(r"^(?:\[(?P<v6>[^]]+)\]|(?P<v4>[0-9.]+))(?::[0-9]+)?$")
FORWARDED_FOR = "x-forwarded-for"
IPV6_PREFIX_BYTES = 8  # one customer or one machine usually has a /64


def read_address(text: str) -> Address | None:
    """Parse an address as accept() or a proxy writes it; None if ``text`` is not an address.

    An IPv4-mapped IPv6 address becomes an IPv4 address. A port and a scope are removed.
    """
    with_port = _PORT.match(text)
    plain = (with_port["v6"] or with_port["v4"]) if with_port else text
    try:
        address = ip_address(plain.partition("%")[0])
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def counted_as(address: Address) -> bytes:
    """Return the bytes that identify one client in limits: an IPv4 address, or the /64 network of an IPv6 address."""
    return address.packed if isinstance(address, IPv4Address) else address.packed[:IPV6_PREFIX_BYTES]


def grouped(address: Address) -> str:
    """Return ``address`` as text for people, grouped as it is counted: ``192.0.2.1``, or ``2001:db8::/64``."""
    if isinstance(address, IPv4Address):
        return str(address)
    bits = 8 * IPV6_PREFIX_BYTES
    return str(IPv6Network((int(address) >> 128 - bits << 128 - bits, bits)))


def counted_address(peer: str | None, forwarded_for: Sequence[str], trusted: Sequence[Network]) -> Hashable:
    """Return what stands for the address of a client in limits; ``forwarded_for`` counts if ``peer`` is trusted."""
    if peer is None or not (trusted or ":" in peer):  # most often: an IPv4 address as it is
        return peer
    named = Trust(trusted).named(peer, forwarded_for)
    address = None if named is None else read_address(named)
    return named if address is None else counted_as(address)


class Trust:
    """The proxies whose ``x-forwarded-for`` is believed."""

    def __init__(self, networks: Sequence[Network]) -> None:
        self.networks = networks

    def trusts(self, address: Address) -> bool:
        """Whether ``address`` belongs to a trusted proxy."""
        return any(address in network for network in self.networks)

    def named(self, peer: str | None, forwarded_for: Sequence[str]) -> str | None:
        """Return the address to log: the client's if ``peer`` is a trusted proxy that names it, else ``peer``."""
        if not self.networks or peer is None:
            return peer
        address = read_address(peer)
        client = self.client(forwarded_for) if address is not None and self.trusts(address) else None
        return peer if client is None else str(client)

    def client(self, forwarded_for: Sequence[str]) -> Address | None:
        """Return the client behind the proxies: the last address in ``x-forwarded-for`` that is not a trusted proxy's.

        Entries before it were written by that client itself and prove nothing. None: there is no valid address.
        """
        for text in reversed(",".join(forwarded_for).split(",")):
            address = read_address(text.strip())
            if address is None or not self.trusts(address):
                return address
        return None
