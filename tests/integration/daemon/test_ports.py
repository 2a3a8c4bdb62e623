"""A taken port: the error names the holder and says what to do."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from butlers.daemon.ports import bind_port, find_holder, hold_port
from butlers.domain.errors import PhaseFailed, PortTaken
from support.in_process import MakeButler

LISTENER = """
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print(listener.getsockname()[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def listening_process(
    host: str = "127.0.0.1", port: int = 0
) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A listening process outside this one."""
    child = subprocess.Popen(
        [sys.executable, "-c", LISTENER, host, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdin is not None
    try:
        yield int(child.stdout.readline()), child
    finally:
        child.stdin.close()
        child.wait(60)
        child.stdout.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_error_names_the_process_that_holds_the_port(host: str) -> None:
    with listening_process(host) as (port, child):
        holder = find_holder(port)
        assert holder is not None
        assert holder.pid == child.pid

        with pytest.raises(PortTaken) as refused:
            bind_port(port)

    assert f"port {port}" in refused.value.message
    assert f"process {child.pid} " in refused.value.message
    assert sys.executable in refused.value.message  # the command
    assert "BUTLERS_PORT_OFFSET" in (refused.value.hint or "")


def test_listener_on_another_address_is_not_named() -> None:
    with listening_process("127.0.0.2") as (port, _child):
        assert find_holder(port) is None


def test_port_held_by_an_invisible_process_is_a_typed_error() -> None:
    """Bound but not listening: there is no listener to name."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} cannot be bound: .*in use"):
            bind_port(port, patience_s=0)


def test_second_listener_on_a_bound_port_gets_the_holder() -> None:
    """Linux lets both bind while neither listens; two daemons that start at once get here."""
    with bind_port(0) as first:
        port = first.getsockname()[1]
        with bind_port(port) as second:
            hold_port(first)
            with pytest.raises(PortTaken, match=f"port {port} cannot be bound: process "):
                hold_port(second)


def test_port_can_be_bound_again_at_once() -> None:
    with bind_port(0) as first:
        port = first.getsockname()[1]
        hold_port(first)
        with socket.create_connection(("127.0.0.1", port)) as client:
            served, _ = first.accept()
            served.close()  # the server closes first, so the port is left in TIME_WAIT
            client.recv(1)
    bind_port(port, patience_s=0).close()


@pytest.mark.scenario("S002-26")
async def test_butler_with_a_taken_port_names_the_holder(make_butler: MakeButler) -> None:
    tester = make_butler()
    with listening_process() as (port, child):
        file = tester.directory / "butler.toml"
        file.write_text(file.read_text().replace("port = 0", f"port = {port}"))

        with pytest.raises(PhaseFailed) as failed:
            await tester.start()

    assert failed.value.phase == "open the port"
    assert isinstance(failed.value.__cause__, PortTaken)
    assert f"port {port} cannot be bound" in failed.value.message
    assert f"process {child.pid} " in failed.value.message
    assert "BUTLERS_PORT_OFFSET" in (failed.value.hint or "")
