from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from butlers.config.roster import ReplacedEdit, refresh_working_copy, with_notes_of
from butlers.domain.errors import ConfigInvalid


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    root = tmp_path / "roster"
    _write(root / "health/butler.toml", "one")
    _write(root / "health/AGENTS.md", "# Health\n\n# Notes to self\n")
    _write(root / "health/skills/run/run.sh", "#!/bin/sh\n")
    (root / "health/skills/run/run.sh").chmod(0o555)
    _write(root / "health/tools/__pycache__/x.pyc", "no")
    _write(root / "shared/AGENTS.md", "for all\n")
    return root


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _tree(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in found}


def _stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    everything = (folder, *folder.rglob("*"))
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in everything}


def test_the_first_copy(shipped: Path, home: Path) -> None:
    copy = refresh_working_copy(shipped, home)
    assert copy == home / "roster"
    assert _tree(copy) == {
        "health/butler.toml": "one",
        "health/AGENTS.md": "# Health\n\n# Notes to self\n",
        "health/skills/run/run.sh": "#!/bin/sh\n",
        "shared/AGENTS.md": "for all\n",
    }
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((copy / "health").stat().st_mode) == 0o700
    assert stat.S_IMODE((copy / "health/butler.toml").stat().st_mode) == 0o600
    assert stat.S_IMODE((copy / "health/skills/run/run.sh").stat().st_mode) == 0o700


def test_nothing_is_written_when_nothing_changed(shipped: Path, home: Path) -> None:
    refresh_working_copy(shipped, home)
    before = _stamps(home)
    refresh_working_copy(shipped, home)
    assert _stamps(home) == before


def test_changed_files_are_updated_and_the_others_not_touched(shipped: Path, home: Path) -> None:
    copy = refresh_working_copy(shipped, home)
    before = _stamps(copy)
    _write(shipped / "health/butler.toml", "two")
    refresh_working_copy(shipped, home)
    assert (copy / "health/butler.toml").read_text() == "two"
    after = _stamps(copy)
    changed = {path.relative_to(copy).as_posix() for path in before if before[path] != after[path]}
    assert changed == {"health", "health/butler.toml"}


def test_a_changed_mode_is_a_change(shipped: Path, home: Path) -> None:
    copy = refresh_working_copy(shipped, home)
    (shipped / "health/butler.toml").chmod(0o755)
    refresh_working_copy(shipped, home)
    assert os.access(copy / "health/butler.toml", os.X_OK)


def test_files_removed_from_the_roster_are_removed_from_the_copy(shipped: Path, home: Path) -> None:
    copy = refresh_working_copy(shipped, home)
    _write(copy / "health/skills/run/__pycache__/x.pyc", "compiled")
    (shipped / "health/skills/run/run.sh").unlink()
    refresh_working_copy(shipped, home)
    assert not (copy / "health/skills").exists()
    assert (copy / "health/butler.toml").exists()


def test_files_made_by_a_session_are_kept(shipped: Path, home: Path) -> None:
    copy = refresh_working_copy(shipped, home)
    _write(copy / "health/skills/custom/mine/SKILL.md", "mine")
    _write(copy / "health/tools/__pycache__/x.pyc", "compiled")
    (shipped / "health/skills/run/run.sh").unlink()
    refresh_working_copy(shipped, home)
    assert (copy / "health/skills/custom/mine/SKILL.md").read_text() == "mine"
    assert (copy / "health/tools/__pycache__/x.pyc").exists()


def test_notes_are_kept_and_the_rest_replaced(shipped: Path, home: Path) -> None:
    copy = refresh_working_copy(shipped, home)
    notes = copy / "health/AGENTS.md"
    notes.write_text("# I changed this\n\n# Notes to self\n\n- likes tea\n")
    _write(shipped / "health/AGENTS.md", "# Health 2\n\n# Notes to self\n\nnothing yet\n")
    refresh_working_copy(shipped, home)
    assert notes.read_text() == "# Health 2\n\n# Notes to self\n\n- likes tea\n"
    before = _stamps(home)
    refresh_working_copy(shipped, home)
    assert _stamps(home) == before


def test_notes_of_a_removed_butler_are_kept(shipped: Path, home: Path) -> None:
    copy = refresh_working_copy(shipped, home)
    with (copy / "health/AGENTS.md").open("a") as file:
        file.write("- likes tea\n")
    for path in sorted((shipped / "health").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    refresh_working_copy(shipped, home)
    assert sorted(_tree(copy)) == ["health/AGENTS.md", "shared/AGENTS.md"]
    assert "- likes tea" in (copy / "health/AGENTS.md").read_text()


@pytest.mark.parametrize(
    ("shipped_text", "present", "expected"),
    [
        (b"new\n# Notes to self\n", b"old\n# Notes to self\nx", b"new\n# Notes to self\nx"),
        (b"new", b"old\n# Notes to self\nx", b"new\n# Notes to self\nx"),
        (b"new\n# Notes to self\n", b"old, the line is gone", b"new\n# Notes to self\n"),
        (b"new\n", b"# Notes to self  \r\nx\xff", b"new\n# Notes to self  \r\nx\xff"),
        (b"", b"# Notes to self\n# Notes to self\n", b"# Notes to self\n# Notes to self\n"),
        (b"new\n", b"## Notes to self\n", b"new\n"),
        (b"", b"", b""),
    ],
)
def test_with_notes_of(shipped_text: bytes, present: bytes, expected: bytes) -> None:
    assert with_notes_of(shipped_text, present) == expected


def test_symlinks_inside_the_roster_become_files(shipped: Path, home: Path) -> None:
    (shipped / "health/GUIDE.md").symlink_to("../shared/AGENTS.md")
    (shipped / "health/common").symlink_to("../shared")
    copy = refresh_working_copy(shipped, home)
    for name in ("health/GUIDE.md", "health/common/AGENTS.md"):
        assert (copy / name).read_text() == "for all\n"
        assert not (copy / name).is_symlink()
    assert not (copy / "health/common").is_symlink()


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("../../outside.md", "points outside the roster"),
        ("/etc", "points outside the roster"),
        ("nowhere", "points to a missing file"),
        ("link", "points to a missing file"),
        ("..", "points to a folder that contains it"),
    ],
)
def test_other_symlinks_are_refused_by_name(
    shipped: Path, home: Path, target: str, why: str
) -> None:
    _write(shipped.parent / "outside.md", "secret")
    (shipped / "health/link").symlink_to(target)
    with pytest.raises(ConfigInvalid, match=f"health/link {why}"):
        refresh_working_copy(shipped, home)
    assert not (home / "roster").exists()


def test_nothing_is_read_or_written_through_a_symlink_in_the_copy(
    shipped: Path, home: Path, tmp_path: Path
) -> None:
    copy = refresh_working_copy(shipped, home)
    outside = tmp_path / "outside"
    _write(outside / "AGENTS.md", "# Notes to self\nsecret\n")
    _write(outside / "run/run.sh", "theirs")
    (copy / "health/AGENTS.md").unlink()
    (copy / "health/AGENTS.md").symlink_to(outside / "AGENTS.md")
    (copy / "health/skills/run/run.sh").unlink()
    (copy / "health/skills/run").rmdir()
    (copy / "health/skills/run").symlink_to(outside / "run")
    refresh_working_copy(shipped, home)
    assert (copy / "health/AGENTS.md").read_text() == "# Health\n\n# Notes to self\n"
    assert (copy / "health/skills/run/run.sh").read_text() == "#!/bin/sh\n"
    assert (outside / "run/run.sh").read_text() == "theirs"
    assert "secret" in (outside / "AGENTS.md").read_text()


def test_a_folder_becomes_a_file_and_back(shipped: Path, home: Path) -> None:
    copy = refresh_working_copy(shipped, home)
    (shipped / "health/skills/run/run.sh").unlink()
    (shipped / "health/skills/run").rmdir()
    _write(shipped / "health/skills/run", "a file now")
    refresh_working_copy(shipped, home)
    assert (copy / "health/skills/run").read_text() == "a file now"
    (shipped / "health/skills/run").unlink()
    _write(shipped / "health/skills/run/run.sh", "back")
    refresh_working_copy(shipped, home)
    assert (copy / "health/skills/run/run.sh").read_text() == "back"


def test_a_folder_with_foreign_files_is_not_replaced(shipped: Path, home: Path) -> None:
    copy = refresh_working_copy(shipped, home)
    _write(copy / "health/skills/run/mine.md", "mine")
    (shipped / "health/skills/run/run.sh").unlink()
    (shipped / "health/skills/run").rmdir()
    _write(shipped / "health/skills/run", "a file now")
    with pytest.raises(ConfigInvalid, match="not empty"):
        refresh_working_copy(shipped, home)
    assert (copy / "health/skills/run/mine.md").read_text() == "mine"


@pytest.fixture
def edits() -> list[ReplacedEdit]:
    return []


def test_edited_file_is_kept_and_reported(
    shipped: Path, home: Path, edits: list[ReplacedEdit]
) -> None:
    file = refresh_working_copy(shipped, home, edits.append) / "health/butler.toml"
    file.write_text("mine")
    refresh_working_copy(shipped, home, edits.append)
    (edit,) = edits
    assert (edit.file, edit.kept.read_text()) == (file, "mine")
    assert file.read_text() == "one"
    assert not edit.kept.is_relative_to(home / "roster")
    assert f"into {home}/butlers/health.toml" in str(edit)
    refresh_working_copy(shipped, home, edits.append)
    assert len(edits) == 1


def test_each_edit_is_kept(shipped: Path, home: Path, edits: list[ReplacedEdit]) -> None:
    file = refresh_working_copy(shipped, home) / "health/skills/run/run.sh"
    for text in ("mine", "mine too", "mine"):
        file.write_text(text)
        _write(shipped / "health/skills/run/run.sh", f"shipped after {text}")
        refresh_working_copy(shipped, home, edits.append)
    assert [edit.kept.read_text() for edit in edits] == ["mine", "mine too", "mine"]
    assert len({edit.kept for edit in edits}) == 2


def test_edit_of_a_file_that_left_the_roster_is_kept(
    shipped: Path, home: Path, edits: list[ReplacedEdit]
) -> None:
    file = refresh_working_copy(shipped, home) / "health/butler.toml"
    file.write_text("mine")
    (shipped / "health/butler.toml").unlink()
    refresh_working_copy(shipped, home, edits.append)
    assert not file.exists()
    assert [edit.kept.read_text() for edit in edits] == ["mine"]


def test_new_release_is_not_an_edit(shipped: Path, home: Path, edits: list[ReplacedEdit]) -> None:
    refresh_working_copy(shipped, home, edits.append)
    _write(shipped / "health/butler.toml", "two")
    _write(shipped / "health/AGENTS.md", "# Health 2\n")
    refresh_working_copy(shipped, home, edits.append)
    assert edits == []


def test_content_of_an_interrupted_refresh_is_not_an_edit(
    shipped: Path, home: Path, edits: list[ReplacedEdit], monkeypatch: pytest.MonkeyPatch
) -> None:
    from butlers.config import roster

    refresh_working_copy(shipped, home)
    _write(shipped / "health/butler.toml", "two")
    write, calls = roster._write_manifest, []

    def _write_once(*arguments: object) -> None:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        write(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(roster, "_write_manifest", _write_once)
        with pytest.raises(KeyboardInterrupt):
            refresh_working_copy(shipped, home)
    assert (home / "roster/health/butler.toml").read_text() == "two"
    _write(shipped / "health/butler.toml", "three")
    refresh_working_copy(shipped, home, edits.append)
    assert edits == []


def test_manifest_of_an_earlier_version_is_read(
    shipped: Path, home: Path, edits: list[ReplacedEdit]
) -> None:
    copy = refresh_working_copy(shipped, home)
    (home / ".roster.json").write_text(json.dumps(sorted(_tree(copy))))
    (copy / "health/butler.toml").write_text("mine, or old")
    (copy / "shared/AGENTS.md").write_text("old")
    (shipped / "health/skills/run/run.sh").unlink()
    refresh_working_copy(shipped, home, edits.append)
    assert [edit.kept.read_text() for edit in edits] == ["mine, or old"]
    assert not (copy / "health/skills").exists()


@pytest.mark.parametrize("text", ["", "{", "3", '["../../victim", "/etc/x", 5, "", "."]'])
def test_damaged_manifest_removes_nothing(
    shipped: Path, home: Path, tmp_path: Path, text: str
) -> None:
    _write(tmp_path / "victim", "safe")
    copy = refresh_working_copy(shipped, home)
    _write(home / ".roster.json", text)
    refresh_working_copy(shipped, home)
    assert (tmp_path / "victim").exists()
    assert len(_tree(copy)) == 4
    assert len(json.loads((home / ".roster.json").read_text())) == 4


def test_interrupted_refresh_leaves_complete_files(
    shipped: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh_working_copy(shipped, home)
    _write(shipped / "health/butler.toml", "two")
    _write(shipped / "health/new.md", "new")

    def _power_cut(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", _power_cut)
        with pytest.raises(KeyboardInterrupt):
            refresh_working_copy(shipped, home)
    assert (home / "roster/health/butler.toml").read_text() == "one"
    copy = refresh_working_copy(shipped, home)
    tree = _tree(copy)
    assert (tree["health/butler.toml"], tree["health/new.md"]) == ("two", "new")
    assert len(tree) == 5


def test_files_of_an_interrupted_refresh_are_removed_later(
    shipped: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from butlers.config import roster as working_copy

    def _power_cut(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(working_copy, "_update", _power_cut)
        with pytest.raises(KeyboardInterrupt):
            refresh_working_copy(shipped, home)
    assert "health/butler.toml" in json.loads((home / ".roster.json").read_text())


def test_unwritable_home_is_reported(shipped: Path, tmp_path: Path) -> None:
    _write(tmp_path / "file", "")
    with pytest.raises(ConfigInvalid, match="cannot be copied"):
        refresh_working_copy(shipped, tmp_path / "file" / "home")


_REFRESH_OFTEN = """
import sys
from pathlib import Path
from butlers.config.roster import refresh_working_copy
shipped, home = map(Path, sys.argv[1:])
for turn in range(15):
    (shipped / "health/butler.toml").write_text(str(turn) * 5000)
    refresh_working_copy(shipped, home)
"""


def test_concurrent_callers_do_not_break_each_other(shipped: Path, home: Path) -> None:
    command = [sys.executable, "-c", _REFRESH_OFTEN, str(shipped), str(home)]
    callers = [subprocess.Popen(command) for _ in range(4)]
    assert [caller.wait(timeout=60) for caller in callers] == [0, 0, 0, 0]
    refresh_working_copy(shipped, home)
    assert _tree(home / "roster") == {
        name: text for name, text in _tree(shipped).items() if "__pycache__" not in name
    }
