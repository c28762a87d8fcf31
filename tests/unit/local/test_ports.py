"""Ports are free when they are given, and stay with their directory."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tailrace.local.ports import free_port, is_free, is_open, settle_ports
from tailrace_schemas.errors import ServiceError

HERE = "127.0.0.1"


def test_free_ports_are_different_and_can_be_listened_on() -> None:
    ports = [free_port(HERE) for _ in range(20)]
    assert len(set(ports)) == 20
    for port in ports:
        with socket.create_server((HERE, port)):
            assert is_open(HERE, port)
            assert not is_free(HERE, port)
        assert not is_open(HERE, port)
        assert is_free(HERE, port)


def test_free_ports_are_out_of_the_way_of_outgoing_connections() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(free_port(HERE) < lowest for _ in range(20))


def test_foreign_address_is_named() -> None:
    with pytest.raises(ServiceError, match=r"203\.0\.113\.1 is not an address of this machine"):
        free_port("203.0.113.1")


def test_wanted_ports_are_kept_and_zero_is_chosen(tmp_path: Path) -> None:
    ports = settle_ports(tmp_path, HERE, {"cql": 9042, "storage": 0})
    assert ports["cql"] == 9042
    assert is_free(HERE, ports["storage"])


def test_chosen_ports_stay_while_they_are_free(tmp_path: Path) -> None:
    wanted = {"a": 0, "b": 0}
    first = settle_ports(tmp_path, HERE, wanted)
    assert settle_ports(tmp_path, HERE, wanted) == first
    with socket.create_server((HERE, first["a"])):
        second = settle_ports(tmp_path, HERE, wanted)
    assert second["a"] != first["a"]
    assert second["b"] == first["b"]
    assert settle_ports(tmp_path, HERE, wanted) == second
