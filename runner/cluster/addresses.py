"""Addresses of this machine, and which of them anybody could reach.

Ray binds to one address only where that is the loopback address; on any other its ports are open on all of a
machine's addresses (2.56.1: the head, both ports of a node, every worker). So what a node must not have is a
public address that nothing guards.
"""

import ipaddress
import re
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_LOCAL_V4 = re.compile(r"\|-- (\d+\.\d+\.\d+\.\d+)\n\s+/32 host LOCAL")
_NET = Path("/proc/net")


def parse(text: str) -> Address | None:
    """Return an IP address, None for what is none (a name, a range)."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def local_addresses(net: Path = _NET) -> list[Address]:
    """Return the addresses of this machine's interfaces, as the kernel lists them for this process."""
    found: set[Address] = set()
    for one in _LOCAL_V4.findall(_read(net / "fib_trie")):
        found.add(ipaddress.IPv4Address(one))
    for line in _read(net / "if_inet6").splitlines():
        found.add(ipaddress.IPv6Address(bytes.fromhex(line.split()[0])))
    return sorted(found, key=lambda one: (one.version, int(one)))


def public_of(addresses: Iterable[Address]) -> list[Address]:
    """Return those that the internet routes. Private ranges, shared ones (100.64/10) and loopback are not."""
    return [one for one in addresses if one.is_global]


def towards(host: str, port: int) -> Address | None:
    """Return the address from which this machine would reach another; nothing is sent."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(where)
            return parse(probe.getsockname()[0])
    except OSError:
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
