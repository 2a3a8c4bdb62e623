"""Imports of commands: each command imports what it uses, so that it answers at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import typer

from butlers.cli.main import COMMANDS, app
from butlers.wire import directory
from butlers.wire.tokens import FleetKey, ServerIdentity

# Packages that take longer to import than a call on this machine, and our own that import them.
HEAVY = [
    "httpx",
    "httpcore",
    "fastmcp",
    "mcp",
    "mcp_types",
    "sqlalchemy",
    "alembic",
    "asyncpg",
    "starlette",
    "uvicorn",
    "structlog",
    "cryptography",
    "numpy",
    "yaml",
    "butlers.config.butler",
    "butlers.config.fleet",
    "butlers.config.document",
    "butlers.daemon",
    "butlers.db",
    "butlers.tools",
    "butlers.skills",
    "butlers.sessions",
]
REPORT = "import atexit, json, sys; atexit.register(lambda: print(json.dumps(list(sys.modules))))\n"
RUN = f"{REPORT}from butlers.cli.main import main\nsys.exit(main())"


def heavy_imports(
    arguments: list[str], home: Path, heavy: Sequence[str] = HEAVY
) -> tuple[int, list[str], str]:
    """Run a command in a process of its own; return its exit code, heavy imports and output."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        env=os.environ | {"BUTLERS_HOME": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    *output, modules = done.stdout.splitlines()
    found = [name for name in json.loads(modules) if _is_one_of(name, heavy)]
    return done.returncode, found, "\n".join((*output, done.stderr))


def _is_one_of(name: str, packages: Sequence[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


class Fleet(ThreadingHTTPServer):
    """Answers health, identity and tool calls as a switchboard and a messenger would."""

    def __init__(self, home: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.identities = {
            name: ServerIdentity(FleetKey.load(home), name) for name in ("switchboard", "messenger")
        }
        self.asked: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Fleet

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer({"name": "switchboard", "health": "healthy", "uptime_s": 1.0})
        else:
            nonce = self.path.partition("nonce=")[2]
            port = self.server.server_address[1]
            self._answer(self.server.identities["switchboard"].answer(nonce, port))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body["params"]["name"])
        answer = {"request_id": "0190a0a0-0000-7000-8000-000000000000"}
        self._answer({"jsonrpc": "2.0", "id": body["id"], "result": {"structuredContent": answer}})

    def _answer(self, document: Any) -> None:
        content = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    (tmp_path / "fleet.toml").write_text('roster = ["switchboard", "messenger"]\n')
    with Fleet(tmp_path) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}/mcp"
        for name in ("switchboard", "messenger"):
            folder = tmp_path / "roster" / name
            folder.mkdir(parents=True)
            (folder / "butler.toml").write_text(f'[butler]\nname = "{name}"\nport = 40100\n')
            directory.announce(tmp_path, name, url, description=f"The {name}.", directory=folder)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_list_of_commands_imports_no_heavy_package(tmp_path: Path) -> None:
    # Typer itself validates the arguments of a command with pydantic.
    code, heavy, output = heavy_imports(["--help"], tmp_path, (*HEAVY, "pydantic"))
    assert (code, heavy) == (0, []), output


def test_send_status_and_list_import_no_heavy_package(fleet: Fleet, tmp_path: Path) -> None:
    for arguments, shown in (
        (["send", "weight 80 kg"], "0190a0a0-0000-7000-8000-000000000000"),
        (["status"], "healthy"),
        (["list"], "The messenger."),
    ):
        code, heavy, output = heavy_imports(arguments, tmp_path)
        assert (code, heavy) == (0, []), output
        assert shown in output
    assert fleet.asked == ["ingest"]


def test_a_butler_that_has_not_announced_itself_is_read_from_its_file(
    fleet: Fleet, tmp_path: Path
) -> None:
    (tmp_path / "run" / "messenger.json").unlink()
    code, heavy, output = heavy_imports(["list", "--json"], tmp_path)
    assert code == 0, output
    assert "butlers.config.butler" in heavy
    rows = json.loads(output[: output.rindex("]") + 1])
    assert [(row["name"], row["state"]) for row in rows] == [
        ("switchboard", "running"),
        ("messenger", "stopped"),
    ]


@pytest.mark.parametrize("name", COMMANDS)
def test_summary_of_a_command_is_the_start_of_its_own_help(name: str) -> None:
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    own = str(command.help).split("\n\n")[0].replace("\n", " ")
    assert COMMANDS[name].summary == own
    assert command.name == name
