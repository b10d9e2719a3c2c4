"""Where a process listens, as the kernel says it."""

from __future__ import annotations

import ipaddress
import struct
from pathlib import Path

import pytest


def needs_proc() -> None:
    if not Path("/proc/net/tcp").exists():
        pytest.skip("the kernel's list of sockets is in /proc, which is not here")


def listening(pid: int) -> list[str]:
    """The addresses of a process's listening TCP sockets, IPv4 ones in IPv6 form included."""
    inodes = set()
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(str(handle.readlink()))
        except FileNotFoundError:  # closed while we looked
            continue
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in inodes:
                found.append(_address(local.partition(":")[0]))
    return found


def beyond_loopback(pid: int) -> list[str]:
    return [address for address in listening(pid) if not _loopback(address)]


def family(pid: int) -> list[int]:
    """A process and all that it started, and those started."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):  # it ended while we looked
            continue
    kin = [pid]
    for one in kin:
        kin.extend(child for child, parent in parents.items() if parent == one)
    return kin


def _address(written: str) -> str:
    words = [int(written[start : start + 8], 16) for start in range(0, len(written), 8)]
    return str(ipaddress.ip_address(struct.pack(f"={len(words)}I", *words)))


def _loopback(address: str) -> bool:
    seen = ipaddress.ip_address(address)
    mapped = seen.ipv4_mapped if isinstance(seen, ipaddress.IPv6Address) else None
    return (mapped or seen).is_loopback
