"""Which addresses weft may connect to: those that are proved to be of the public internet, and those that were allowed.

What names and redirects lead to is chosen by strangers; without a guard they choose this machine, its neighbours, or
the place where a cloud keeps its keys. The table is our own, because what libraries call private or global changes
with their version. An address that carries another one inside (NAT64, 6to4 …) is as good as the one that it carries.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
AddressInfo = tuple[Any, Any, int, str, tuple[Any, ...]]
"""One of what ``socket.getaddrinfo`` returns."""

CLOSED: tuple[tuple[str, str], ...] = (
    ("0.0.0.0/8", "this network"),
    ("10.0.0.0/8", "a private network"),
    ("100.64.0.0/10", "the network of a carrier"),
    ("127.0.0.0/8", "this machine"),
    ("169.254.0.0/16", "the local link"),
    ("172.16.0.0/12", "a private network"),
    ("192.0.0.0/24", "protocol assignments"),
    ("192.0.2.0/24", "documentation"),
    ("192.88.99.0/24", "relays of 6to4"),
    ("192.168.0.0/16", "a private network"),
    ("198.18.0.0/15", "benchmarks"),
    ("198.51.100.0/24", "documentation"),
    ("203.0.113.0/24", "documentation"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved"),
    ("2001::/23", "protocol assignments"),
    ("2001:db8::/32", "documentation"),
    ("3ffe::/16", "reserved"),
    ("3fff::/20", "documentation"),
)
"""Parts of the public ranges (all of IPv4, 2000::/3 of IPv6) that are not public."""

CARRIERS = ("::ffff:0:0/96", "64:ff9b::/96", "2001::/32", "2002::/16")
"""Mapped, NAT64, Teredo and 6to4: as good as the IPv4 addresses inside."""

METADATA = ("169.254.169.254", "169.254.170.2", "169.254.169.253", "100.100.100.200", "192.0.0.192", "168.63.129.16")
METADATA_V6 = ("fd00:ec2::254", "fd00:ec2::253", "fd20:ce::254")
METADATA_NAMES = frozenset(
    ("metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal")
)
"""Where clouds keep the keys of a machine: closed even in an allowed network, unless that one address is allowed."""

_CLOSED: tuple[tuple[Network, str], ...] = tuple((ip_network(network), what) for network, what in CLOSED)
_CARRIERS = tuple(IPv6Network(network) for network in CARRIERS)
_METADATA: frozenset[Address] = frozenset(map(ip_address, METADATA + METADATA_V6))
_PUBLIC_V6 = IPv6Network("2000::/3")
_TEREDO, _SIX_TO_FOUR = _CARRIERS[2:]
_ISATAP = (0x00005EFE, 0x02005EFE)


class RefusedAddress(OSError):
    """An address, or a name, that weft does not connect to; as if there were no way there."""

    def __init__(self, which: str, what: str) -> None:
        sentence = f"{which} is not public: it belongs to {what}; allow it with the setting allowed_networks"
        super().__init__(errno.EACCES, sentence)
        self._sentence = sentence

    def __str__(self) -> str:
        return self._sentence


class Guard:
    """Says no to addresses that are not public, except in the networks that are allowed."""

    def __init__(self, allowed: Sequence[str] = ()) -> None:
        self.allowed = tuple(allowed)
        self._allowed: tuple[Network, ...] = tuple(ip_network(each, strict=False) for each in allowed)
        self._why = lru_cache(10_000)(self._reason)

    def check(self, address: str) -> None:
        """Raise ``RefusedAddress`` unless this address, given in figures, may be connected to."""
        why = self._why(address)
        if why:
            raise RefusedAddress(address, why)

    def socket(self, found: AddressInfo) -> socket.socket:
        """A socket for an address as getaddrinfo gives it; for libraries that look up names and connect themselves."""
        family, kind, protocol, _, address = found
        self.check(str(address[0]))
        return socket.socket(family, kind, protocol)

    def check_name(self, host: str) -> None:
        """Raise ``RefusedAddress`` for names that only lead where nobody should go; addresses are checked as such."""
        name = host.rstrip(".").lower()
        if name in METADATA_NAMES:
            raise RefusedAddress(host, "the keys of a cloud")
        if (address := literal(host)) is not None:
            self.check(str(address))

    def _reason(self, address: str) -> str:
        """Why an address is closed; empty: it is open."""
        read = literal(address)
        return self._why_closed(read) if read is not None else "no network at all: it is no address"

    def _why_closed(self, address: Address) -> str:
        if address in _METADATA:
            exact = any(address in network and network.num_addresses == 1 for network in self._allowed)
            return "" if exact else "the keys of a cloud"
        if any(address in network for network in self._allowed):
            return ""
        inside = list(_carried(address))
        for each in inside:
            if why := self._why_closed(each):
                return f"{why} (as {each})"
        if inside and any(address in network for network in _CARRIERS):
            return ""
        return _why_not_public(address)


def _why_not_public(address: Address) -> str:
    if isinstance(address, IPv6Address) and address not in _PUBLIC_V6:
        return "no public network"
    return next((what for network, what in _CLOSED if address in network), "")


def _carried(address: Address) -> Iterator[IPv4Address]:
    """The IPv4 addresses inside one of IPv6."""
    if isinstance(address, IPv4Address):
        return
    number = int(address)
    if address in _TEREDO:
        yield IPv4Address(number >> 64 & 0xFFFFFFFF)
        yield IPv4Address(~number & 0xFFFFFFFF)
    elif address in _SIX_TO_FOUR:
        yield IPv4Address(number >> 80 & 0xFFFFFFFF)
    elif any(address in network for network in _CARRIERS):
        yield IPv4Address(number & 0xFFFFFFFF)
    if number >> 32 & 0xFFFFFFFF in _ISATAP:
        yield IPv4Address(number & 0xFFFFFFFF)


def literal(host: str) -> Address | None:
    """The address that is meant, without brackets and zone; None: it is a name."""
    text = host.removeprefix("[").removesuffix("]").partition("%")[0]
    try:
        return ip_address(text)
    except ValueError:
        return None
