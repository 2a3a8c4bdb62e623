"""Offline is offline, for a test's sockets, threads and processes, and only for as long as it lasts."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys

import pytest

from support.offline import OWN_NAMESPACE, offline, only_loopback

__all__ = ["offline"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a network of its own needs root")
NAMES = "import socket; print([name for _, name in socket.if_nameindex()])"


def names() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def names_in_a_child() -> str:
    program = [sys.executable, "-c", NAMES]
    return subprocess.run(program, capture_output=True, text=True, check=True).stdout


@pytest.mark.usefixtures("offline")
async def test_only_loopback_is_there() -> None:
    assert names() == ["lo"]
    assert await asyncio.to_thread(names) == ["lo"]
    assert await asyncio.to_thread(names_in_a_child) == "['lo']\n"
    with socket.socket() as abroad, pytest.raises(OSError, match="unreachable"):
        abroad.connect(("192.0.2.1", 80))


@pytest.mark.usefixtures("offline")
async def test_loopback_works() -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b""
        writer.close()


def test_afterwards_all_is_as_it_was() -> None:
    before = os.readlink(OWN_NAMESPACE)
    with only_loopback():
        assert os.readlink(OWN_NAMESPACE) != before
    assert os.readlink(OWN_NAMESPACE) == before
