"""``butlers chat``: lines from a pipe, and a terminal in which replies and reminders appear."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Iterator

import pytest

from support.fleet import PATIENCE_S, Fleet, butlers_environment, command, wait_for


class Terminal:
    """A terminal with ``butlers chat`` in it: types keys, and reads what is shown."""

    def __init__(self, fleet: Fleet) -> None:
        self._master, slave = pty.openpty()
        env = butlers_environment(
            fleet.home, fleet.slot.offset, TERM="xterm", PROMPT_TOOLKIT_NO_CPR="1", COLUMNS="200"
        )
        self.process = subprocess.Popen(
            command("chat"), stdin=slave, stdout=slave, stderr=slave, env=env, cwd=fleet.home
        )
        os.close(slave)
        self.shown = ""

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, text: str, times: int = 1) -> None:
        """Wait until the terminal has shown a text so many times."""
        deadline = time.monotonic() + PATIENCE_S
        while self.plain().count(text) < times:
            assert time.monotonic() < deadline, f"no {text!r} in: {self.plain()[-1500:]}"
            if select.select([self._master], [], [], 0.2)[0]:
                self.shown += self._read()

    def wait_end(self) -> int:
        """Read until the program has ended; a full terminal would stop it."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still there: {self.plain()[-1500:]}"
            if select.select([self._master], [], [], 0.2)[0]:
                self.shown += self._read()
        return self.process.returncode

    def plain(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.shown)

    def _read(self) -> str:
        try:
            return os.read(self._master, 65536).decode("utf-8", "replace")
        except OSError:  # the other end is closed
            return ""

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def terminal(fleet: Fleet) -> Iterator[Terminal]:
    made = Terminal(fleet)
    yield made
    made.close()


def test_piped_lines_are_answered_in_order(fleet: Fleet) -> None:
    done = fleet.butlers("chat", stdin="add milk to shopping\n\nshopping list\nundo\nexit\nping\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Added to shopping: milk.",
        "On the list shopping:",
        "- milk",
        "Undone: milk on the list shopping removed.",
    ]


def test_terminal_completes_shows_replies_reminders_and_undo(
    fleet: Fleet, terminal: Terminal
) -> None:
    terminal.wait_for("“undo” takes back")
    terminal.type("help\r")
    terminal.wait_for("You can say, for example:")
    terminal.type("what lists do\t")
    terminal.wait_for("I have?")  # the rest of the only example that begins so
    terminal.type("\r")
    terminal.wait_for("You have no lists.")
    terminal.type("add milk to shopping\r")
    terminal.wait_for("Added to shopping: milk.")
    terminal.type("undo\r")
    terminal.wait_for("Undone: milk on the list shopping removed.")
    terminal.type("remind me in 2 seconds to stretch\r")
    terminal.wait_for("I will remind you")
    terminal.wait_for("* stretch")
    fleet.butlers("send", "ping")
    terminal.wait_for("* pong")
    terminal.type("\x1b[A")  # the previous message of the history
    terminal.type("\r")
    terminal.wait_for("I will remind you", 2)
    terminal.type("\x04")
    assert terminal.wait_end() == 0
    history = fleet.home / "chat_history"
    assert "+undo" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_terminal_says_when_the_fleet_is_away(fleet: Fleet, terminal: Terminal) -> None:
    terminal.wait_for("“undo” takes back")
    fleet.stop("switchboard")
    try:
        terminal.type("ping\r")
        terminal.wait_for("error: ")
    finally:
        fleet.start("switchboard")
        wait_for("the switchboard", lambda: fleet.health("switchboard"))
