"""Tells addresses that only this machine reaches."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Returns whether a host is this machine only.

    >>> [is_loopback(host) for host in ("127.0.0.1", "[::1]", "LOCALHOST", "0.0.0.0", "evil.example", "127.0.0.1.evil.example")]
    [True, True, True, False, False, False]
    """
    name = host.removeprefix("[").removesuffix("]")
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
