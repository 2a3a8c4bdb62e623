"""``butlers skills run``, ``register --built-in`` and ``install`` from git."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from butlers.skills.registry.catalog import SkillState
from butlers.skills.registry.new_skill import NewSkill
from butlers.skills.registry.registry import SkillRegistry
from support.skills import write_files, write_pack
from support.skills_cli import Run

ECHO = """
import json, os, sys
print("working", file=sys.stderr)
print(json.dumps({"success": True, "result": {
    "given": sys.argv[1], "here": os.getcwd(), "key": len(os.environ.get("API_KEY", "")),
    "access": os.environ["BUTLERS_ACCESS"], "names": sorted(os.environ)}}))
"""


@pytest.fixture
def pack(run: Run, tmp_path: Path) -> Path:
    files: dict[str, str | bytes] = {
        "scripts/echo.py": ECHO,
        "scripts/fail.sh": "echo broken >&2\nexit 7\n",
        "scripts/slow.sh": "sleep 100\n",
        "scripts/say.sh": 'echo "$API_KEY is the key"\n',
        ".env.example": "API_KEY=\n",
    }
    folder = write_pack(
        tmp_path / "a-pack",
        files,
        id="a-pack",
        version="1.0.0",
        owner="me",
        scripts=[path for path in files if path.startswith("scripts/")],
        envVars=["API_KEY"],
    )
    assert run("register", folder).code == 0
    return folder


def test_script_gets_the_declared_variables(
    run: Run, pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "s3cret-value")
    monkeypatch.setenv("OTHER_KEY", "x")
    ran = run("run", "a-pack@1.0.0", "echo", '{"a": 1}', "--json")
    assert ran.code == 0
    assert ran.json["success"] is True
    assert ran.json["missing"] == []
    assert ran.json["stderr"] == "working\n"
    result = ran.json["result"]
    assert json.loads(result["given"]) == {"a": 1}
    assert (result["key"], result["access"]) == (12, "workspace")
    assert result["here"] == str(tmp_path.resolve())
    assert "OTHER_KEY" not in result["names"]
    assert "BUTLERS_HOME" not in result["names"]
    said = run("run", "a-pack@1.0.0", "say.sh")
    assert said.out == "[redacted] is the key\n"


def test_a_missing_variable_is_a_warning_and_the_script_runs(run: Run, pack: Path) -> None:
    ran = run("run", "a-pack", "echo")
    assert ran.code == 0
    assert "warning: API_KEY is declared but not set" in ran.err
    assert "warning: person → a-pack names no version" in ran.err
    assert json.loads(ran.out)["key"] == 0


def test_failed_script_exits_with_1_and_shows_its_error(run: Run, pack: Path) -> None:
    ran = run("run", "a-pack@1.0.0", "fail")
    assert (ran.code, ran.out) == (1, "")
    assert "error: broken\nhint: the exit code of the script was 7" in ran.err
    as_json = run("run", "a-pack@1.0.0", "fail", "--json")
    assert as_json.code == 1
    assert (as_json.json["success"], as_json.json["exitCode"]) == (False, 7)


def test_run_errors_have_a_message_and_a_hint(run: Run, pack: Path) -> None:
    for arguments, message in (
        (("gone", "echo"), "there is no skill gone"),
        (("a-pack@9.9.9", "echo"), "no version of a-pack fits"),
        (("a-pack@1.0.0", "gone"), "has no script 'gone'"),
        (("a-pack@1.0.0", "echo", "{"), "the arguments are not JSON"),
        (("a-pack@1.0.0", "echo", "1"), "neither an object nor a list"),
        (("a-pack@1.0.0", "slow", "--timeout-s", "0.5"), "was stopped after 0.5 s"),
        (("a-pack@1.0.0", "echo", "--butler", "nobody"), "there is no butler 'nobody'"),
    ):
        ran = run("run", *arguments)
        assert ran.code == 1, arguments
        assert message in ran.err
        assert "\nhint: " in ran.err, arguments
        assert ran.out == ""


def test_arguments_come_from_stdin_too(
    run: Run, pack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"b": 2}'))
    ran = run("run", "a-pack@1.0.0", "echo", "-", "--json")
    assert json.loads(ran.json["result"]["given"]) == {"b": 2}


def test_run_as_a_butler_works_in_its_folder(run: Run, pack: Path, tmp_path: Path) -> None:
    folder = tmp_path / "butlers" / "mine"
    write_files(folder, {"butler.toml": '[butler]\nname = "mine"\nport = 40190\n'})
    ran = run("run", "a-pack@1.0.0", "echo", "--butler", "mine", "--access", "sealed", "--json")
    assert ran.json["result"]["here"] == str(folder.resolve())
    assert ran.json["result"]["access"] == "sealed"


def test_draft_runs_for_its_maker_only(run: Run, pack: Path, tmp_path: Path, home: Path) -> None:
    write_files(
        tmp_path / "butlers" / "mine", {"butler.toml": '[butler]\nname = "mine"\nport = 40190\n'}
    )
    draft = write_pack(
        tmp_path / "a-draft",
        {"scripts/a.sh": "echo mine\n"},
        id="a-draft",
        version="1.0.0",
        owner="mine",
        scripts=["scripts/a.sh"],
    )
    SkillRegistry(home).register(NewSkill(draft, by="mine", state=SkillState.DRAFT))
    ran = run("run", "a-draft@1.0.0", "a")
    assert ran.code == 1
    assert "is a draft of mine" in ran.err
    assert run("run", "a-draft@1.0.0", "a", "--butler", "mine").out == "mine\n"


def test_run_of_a_changed_pack_is_refused(run: Run, pack: Path, home: Path) -> None:
    file = home / "skills" / "custom" / "a-pack@1.0.0" / "scripts" / "echo.py"
    file.chmod(0o755)
    file.write_text(file.read_text() + " ")
    ran = run("run", "a-pack@1.0.0", "fail")
    assert ran.code == 1
    assert "has changed since it was registered" in ran.err


def test_built_in_packs_are_registered_by_one_command(run: Run, tmp_path: Path, home: Path) -> None:
    assert run("register", "--built-in").out == "".join(
        f"registered {name}-tools: 1.0.0\n" for name in ("basic", "cron", "mail")
    )
    assert run("register", "--built-in").code == 0
    assert (home / "skills" / "built-in" / "basic-tools@1.0.0").is_dir()
    write_files(tmp_path, {"notes.md": "mine\n"})
    ran = run("run", "basic-tools@1.0.0", "read-file", '{"path": "notes.md"}')
    assert json.loads(ran.out)["content"] == "mine\n"
    alone = run("run", "mail-tools", "list-inbox")
    assert (alone.code, "run it with the butler's skill_run" in alone.err) == (1, True)
    assert "name one folder, or use --built-in" in run("register").err
    assert "name one folder, or use --built-in" in run("register", tmp_path, "--built-in").err


def test_a_skill_is_installed_from_git_at_a_named_commit(run: Run, tmp_path: Path) -> None:
    folder = write_pack(tmp_path / "source", owner="me")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "x")):
        subprocess.run([*git, *words], cwd=folder, check=True)
    told = subprocess.check_output([*git, "rev-parse", "HEAD"], cwd=folder, text=True)
    refused = run("install", f"git+file://{folder}@main", "--yes")
    assert (refused.code, refused.out) == (1, "")
    assert "a branch or tag can move" in refused.err
    ran = run("install", f"file://{folder}", "--commit", told.strip(), "--yes")
    assert ran.out == "installed social-media: 2.1.0\n"
