"""Which addresses weft may connect to. Every closed one is here with the reason that it must be closed."""

from __future__ import annotations

import pytest

from tests.cases import for_each
from weft.address_guard import CLOSED, METADATA, METADATA_V6, Guard, RefusedAddress

OPEN = [
    *("1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1"),
    *("192.0.1.1", "198.17.255.255", "198.20.0.1", "223.255.255.255", "9.255.255.255", "11.0.0.0"),
    *("2606:4700::1111", "2a00:1450:4001::200e", "2620:fe::fe", "2400:cb00::1"),
    *("::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1", "2a00::5efe:808:808"),
]
CLOSED_ONES = [
    "0.0.0.0",  # noqa: S104
    *("0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.9.9.9"),
    *("169.254.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1"),
    *("192.88.99.1", "192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.7", "224.0.0.1"),
    *("239.255.255.255", "240.0.0.1", "255.255.255.255", "100.100.100.200", "168.63.129.16"),
    *("::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1", "::ffff:169.254.169.254"),
    *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b::10.0.0.1", "64:ff9b:1::7f00:1", "64:ff9b:1:7f00:0:100::"),
    *("2002:7f00:1::", "2002:a9fe:a9fe::1", "2002:c0a8:1::1", "2001:0:7f00:1::", "2001:0:808:808::80ff:fffe"),
    *("2a00::5efe:7f00:1", "2a00::200:5efe:a00:1", "fe80::5efe:808:808", "fe80::1", "fec0::1", "fc00::1", "fd12::1"),
    *("fd00:ec2::254", "fd20:ce::254", "ff02::1", "ff0e::1", "100::1", "2001:2::1", "2001:10::1", "2001:20::1"),
    *("2001:db8::1", "3fff::1", "3ffe::1", "5f00::1", "4000::1", "8000::1", "fe80::1%eth0", "[::1]"),
    *("", "localhost", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "127.0.0.1.", "1.1.1.1 ", "¹27.0.0.1"),
]


@for_each("address", OPEN)
def test_a_public_address_is_open(address: str) -> None:
    Guard().check(address)


@for_each("address", CLOSED_ONES)
def test_an_address_that_is_not_public_is_closed(address: str) -> None:
    with pytest.raises(RefusedAddress, match="allowed_networks"):
        Guard().check(address)


@for_each("network", [network for network, _ in CLOSED])
def test_a_closed_network_is_open_where_it_is_allowed_and_no_other_is(network: str) -> None:
    first = network.partition("/")[0]
    Guard([network]).check(first)
    for other in ("127.0.0.1", "fd12::1"):
        if not network.startswith("127"):
            with pytest.raises(RefusedAddress):
                Guard([network]).check(other)


def test_an_address_inside_another_is_as_open_as_by_itself() -> None:
    here = Guard(["127.0.0.0/8"])
    for address in ("127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"):
        here.check(address)
    with pytest.raises(RefusedAddress):
        here.check("::ffff:10.0.0.1")


@for_each("address", [*METADATA, *METADATA_V6])
def test_the_keys_of_a_cloud_are_open_only_where_that_one_address_is_allowed(address: str) -> None:
    with pytest.raises(RefusedAddress, match="keys of a cloud"):
        Guard(["0.0.0.0/0", "::/0"]).check(address)
    Guard([address]).check(address)


@pytest.mark.parametrize("name", ["metadata.google.internal", "METADATA.google.internal.", "metadata", "instance-data"])
def test_names_of_the_keys_of_a_cloud_are_closed_whatever_is_allowed(name: str) -> None:
    with pytest.raises(RefusedAddress):
        Guard(["0.0.0.0/0", "::/0"]).check_name(name)


def test_a_name_is_open_until_its_addresses_are_known() -> None:
    Guard().check_name("weft.example")
    with pytest.raises(RefusedAddress):
        Guard().check_name("[::1]")
