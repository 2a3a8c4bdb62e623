"""``butlers status`` with a butler that is asked over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from typer.testing import CliRunner

from butlers.cli.main import app
from butlers.daemon.skills import folder_problems
from butlers.wire import directory
from support.skills import write_files

WRONG = "Morning_Briefing"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home in which ``general`` answers with the problems of its skills folder."""
    skill = {f"skills/{WRONG}/SKILL.md": "---\nname: x\ndescription: Plans.\n---\nPlan.\n"}
    problems = folder_problems(write_files(tmp_path / "general", skill))
    state = {
        "name": "general",
        "health": "healthy",
        "runtime_warnings": ["codex 9.9.9 is not tested; 0.166.0 is"],
        "diagnostics": [problem.as_dict() for problem in problems],
    }

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(state).encode())

        def log_message(self, *_: object) -> None:
            return None

    (tmp_path / "fleet.toml").write_text('roster = ["general"]\n')
    monkeypatch.setenv("BUTLERS_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with HTTPServer(("127.0.0.1", 0), Health) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        directory.announce(tmp_path, "general", f"http://127.0.0.1:{server.server_port}/mcp")
        yield tmp_path
        server.shutdown()


def test_problem_of_a_skills_folder_is_printed_with_its_hint(home: Path) -> None:
    said = CliRunner().invoke(app, ["status"])
    assert said.exit_code == 0, said.output
    place = home / "general" / "skills" / WRONG
    assert f"general: {place}: error folder-name: the skill's folder name {WRONG!r}" in said.stderr
    assert "(hint: rename it to morning-briefing)" in said.stderr


def test_an_untested_cli_is_printed(home: Path) -> None:
    said = CliRunner().invoke(app, ["status"])
    assert "codex 9.9.9 is not tested; 0.166.0 is" in said.stderr.splitlines()
