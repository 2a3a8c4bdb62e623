"""The boundary around the daemon's memory and environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from butlers.process import hardening

DAEMON = """
import ctypes, os, sys
from butlers.process.hardening import forbid_inspection, forget_environment
forbid_inspection()
forget_environment(os.environ)
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), sorted(os.environ), flush=True)
sys.stdin.read()
"""
SECRETS = {
    "BUTLERS_MASTER_KEY": "master-planted",
    "DATABASE_URL": "postgresql://u:pw-planted@h/d",
    "ANY_TOKEN": "t-planted",
}


def test_environment_of_a_daemon_holds_no_secret() -> None:
    """Attack: read /proc/PID/environ of the daemon as another process of the same account."""
    env = {**SECRETS, "PATH": os.environ["PATH"], "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
    daemon = subprocess.Popen(
        [sys.executable, "-c", DAEMON],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert daemon.stdout is not None
        said = daemon.stdout.readline()
        assert said.startswith("0 "), "it is not dumpable"
        shown = Path(f"/proc/{daemon.pid}/environ").read_bytes() if os.getuid() == 0 else b"PATH="
        assert b"planted" not in shown
        assert b"PATH=" in shown
        assert "PATH" in said
        assert not any(name in said for name in SECRETS)
    finally:
        daemon.communicate()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become two other users' processes")
def test_memory_of_a_daemon_is_closed_to_its_own_account() -> None:
    """Attack: read /proc/PID/mem and environ as the daemon's own user."""
    nobody = 65534
    run_as = ["/usr/bin/setpriv", f"--reuid={nobody}", f"--regid={nobody}", "--clear-groups"]
    python = "/usr/bin/python3"
    if not Path(python).exists() or not Path(run_as[0]).exists():
        pytest.skip("this needs a system Python and setpriv")
    source = Path(hardening.__file__).read_text()
    body = "import sys\n{}\nprint(1, flush=True)\nsys.stdin.read()"
    hardened = "scope = {}; exec(sys.argv[1], scope); scope['forbid_inspection']()"
    for protect, expected in ((hardened, False), ("pass", True)):
        daemon = subprocess.Popen(
            [*run_as, python, "-c", body.replace("{}", protect, 1), source],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert daemon.stdout is not None
            daemon.stdout.readline()
            read = f"open('/proc/{daemon.pid}/environ').read()"
            attack = subprocess.run([*run_as, python, "-c", read], capture_output=True, check=False)
            assert (attack.returncode == 0) is expected
        finally:
            daemon.communicate()
