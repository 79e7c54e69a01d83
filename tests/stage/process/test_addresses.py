"""Which addresses are of this machine, and which belong to one client."""

import pytest

from forwarder.process.addresses import client_of, is_local


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "/run/postgresql"])
def test_it_is_of_this_machine(host: str) -> None:
    assert is_local(host)


@pytest.mark.parametrize(
    "host", ["", "localhost.example.com", "10.0.0.1", "::ffff:10.0.0.1", "0.0.0.0", "::", "127.0.0.1.nip.io"]
)
def test_it_may_be_of_another_machine(host: str) -> None:
    assert not is_local(host)


def test_a_client_has_an_address_of_version_4_or_a_network_of_64_bits() -> None:
    assert client_of("2001:db8::1") == client_of("2001:db8:0:0:ffff::2") != client_of("2001:db8:0:1::1")
    assert client_of("::ffff:192.0.2.1") == client_of("192.0.2.1") != client_of("192.0.2.2")
