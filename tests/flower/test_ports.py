"""Free ports."""

import socket

from fedblade.flower._processes import LOOPBACK, free_ports, is_open


def test_free_ports_differ_and_can_be_taken():
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        with socket.socket() as taken:
            taken.bind((LOOPBACK, port))


def test_a_port_is_open_while_something_listens():
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        assert is_open(port)
    assert not is_open(port)
