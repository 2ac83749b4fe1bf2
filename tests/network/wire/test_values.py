"""Addresses: what a host may be called, and nothing else."""

from __future__ import annotations

import pytest

from securedfl.errors import ConfigError
from securedfl.network.wire.values import split_address


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("a.example.org:7443", "a.example.org"),
        ("site_a-1:7443", "site_a-1"),
        ("bücher.example:7443", "bücher.example"),
        ("127.0.0.1:7443", "127.0.0.1"),
        ("[::1]:7443", "::1"),
        ("::1:7443", "::1"),
        ("[::ffff:10.0.0.1]:7443", "::ffff:10.0.0.1"),
        ("[fe80::1%eth0]:7443", "fe80::1%eth0"),
    ],
)
def test_names_and_numbers_of_hosts_are_addresses(address, host):
    assert split_address(address) == (host, 7443)


@pytest.mark.parametrize(
    "address",
    [
        *("a\r\nX: y:7443", "a\n:7443", "a b:7443", "a\x1b[31m:7443", "a/b:7443", "user@a:7443", "a\0:7443", "a?:7443"),
        *("[fe80::1%lo\r\nX]:7443", "x%y:7443", "a\u202eb:7443", "a:74\n43", "a:7443\n", "a:\uff17", "[]:7443", "a"),
    ],
)
def test_whatever_else_stands_in_an_address_is_refused(address):
    with pytest.raises(ConfigError, match="is not an address") as error:
        split_address(address)
    assert str(error.value).isprintable()
