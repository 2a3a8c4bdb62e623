"""``butlers demo`` and ``butlers import`` on it: an invented life, a bank statement, and both gone again."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.fleet import PATIENCE_S, butlers_environment, wait_for
from support.forked import nursery, run_butlers

STATEMENT = """Buchungstag;Auftraggeber / Begünstigter;Verwendungszweck;Betrag (EUR);Währung
03.03.2020;REWE SAGT DANKE;Einkauf;-45,15;EUR
04.03.2020;Arbeitgeber GmbH;Gehalt;2.500,00;EUR
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="bd-"))  # short: it holds sockets
    yield made
    shutil.rmtree(made, ignore_errors=True)


def _check_export(butlers: Callable[..., subprocess.CompletedProcess[str]], folder: Path) -> None:
    """Every record is in the files, in both formats, and a folder with content is refused."""
    for form in ("csv", "json"):
        done = butlers("export", form, "--format", form, "--json")
        assert done.returncode == 0, done.stderr
        written = {(one["butler"], one["table"]): one for one in json.loads(done.stdout)}
        assert {butler for butler, _ in written} >= {"health", "finance", "general", "travel"}
        largest = max(written.values(), key=lambda one: int(one["rows"]))
        assert largest["rows"] > 500, "more than a page"
        file = folder / largest["file"]
        assert file.stat().st_mode & 0o077 == 0
        with file.open(newline="") as opened:
            rows = list(csv.DictReader(opened)) if form == "csv" else json.load(opened)
        assert len(rows) == len({row["id"] for row in rows}) == largest["rows"]
        assert {row["trust"] for row in rows} == {"owner"}
    again = butlers("export", "csv")
    assert again.returncode == 1
    assert "hint: name a new folder" in again.stderr


def test_demo_answers_its_examples_and_imports_a_file_once(folder: Path) -> None:
    environment = {**butlers_environment(folder / "unused", 0), "TMPDIR": str(folder)}
    process = nursery().start(("demo",), environment, folder / "demo.log", folder)

    def ready() -> str | None:
        text = (folder / "demo.log").read_text()
        assert process.poll() is None, f"butlers demo ended: {text[-3000:]}"
        return text if "Ctrl-C ends the demo" in text else None

    try:
        printed = wait_for("the demo to be ready", ready)
        (home,) = folder.glob("butlers-demo-*")
        assert "invented" in (home / "DEMO").read_text()
        commands = [line.strip() for line in printed.splitlines() if "butlers send" in line]
        assert len(commands) == 6
        env = butlers_environment(home, 0)

        def butlers(*arguments: str) -> subprocess.CompletedProcess[str]:
            return run_butlers(*arguments, env=env, cwd=folder)

        for command in commands:
            text = command.split("butlers send ")[1].removesuffix(" --wait").strip("'")
            answer = butlers("send", text, "--wait")
            assert answer.returncode == 0, answer.stderr
            assert "closest" not in answer.stdout, (text, answer.stdout)
        assert butlers("send", "undo", "--wait").stdout == "Undone: lunch 12.50 EUR removed.\n"

        _check_export(butlers, folder)
        (folder / "bank.csv").write_text(STATEMENT)
        preview = json.loads(butlers("import", "bank.csv", "--preview", "--json").stdout)
        assert (preview["rows"], preview["sums"]) == (2, {"EUR": "2454.85"})
        added = [
            json.loads(butlers("import", "bank.csv", "--yes", "--json").stdout)["added"]
            for _ in range(2)
        ]
        assert added == [2, 0]
        asked = butlers("send", "what did I spend in March 2020", "--wait").stdout
        assert "45.15 EUR" in asked
        assert butlers("import", "bank.csv", "--undo").stdout == "2 removed\n"
        again = butlers("import", "bank.csv", "--undo")
        assert again.returncode == 1
        assert "is not imported" in again.stderr
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
    assert not list(folder.glob("butlers-demo-*")), "a demo without --keep leaves nothing behind"
