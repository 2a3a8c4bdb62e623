"""Access levels in a butler's folder: one literal entry per thing, and none for what could be read twice."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from butlers.config.butler import load_butler_config
from butlers.config.settings import Settings
from butlers.domain.clock import uuid7
from butlers.domain.message import RequestContext
from butlers.domain.session import Access, SessionRequest
from butlers.sessions.workspace import grants_for, level_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path in ("skills/brief/run.py", "skills/brief/lib/deep.py", "skills/tidy/run.sh"):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    (tmp_path / "skills" / "tidy" / "tool").write_text("")
    (tmp_path / "skills" / "tidy" / "tool").chmod(0o755)
    return tmp_path


def test_drafts_are_not_granted_as_commands(folder: Path) -> None:
    draft = folder / "skills" / "custom" / "weekly" / "scripts" / "run.py"
    draft.parent.mkdir(parents=True)
    draft.write_text("")
    assert not [one for one in grants_for(Access.WORKSPACE, folder).commands if "custom" in one]


def test_the_folders_of_mounted_skills_are_readable(folder: Path, tmp_path: Path) -> None:
    mounted = (tmp_path / "home" / ".claude" / "skills",)
    assert grants_for(Access.WORKSPACE, folder, mounted).readable == (folder, *mounted)
    assert grants_for(Access.SEALED, folder, mounted).readable == ()


def test_sealed_and_full_have_no_grant_list(folder: Path) -> None:
    for access in (Access.SEALED, Access.FULL):
        grants = grants_for(access, folder)
        assert (grants.readable, grants.writable, grants.commands) == ((), (), ())


def test_a_workspace_reads_the_folder_writes_its_notes_and_runs_each_script(folder: Path) -> None:
    grants = grants_for(Access.WORKSPACE, folder)
    assert grants.readable == (folder,)
    assert grants.writable == (folder / "AGENTS.md",)
    assert set(grants.commands) == {
        "ls skills",
        "ls skills/",
        "ls skills/brief",
        "ls skills/tidy",
        "python skills/brief/run.py",
        "python3 skills/brief/run.py",
        "python skills/brief/lib/deep.py",
        "python3 skills/brief/lib/deep.py",
        "bash skills/tidy/run.sh",
        "sh skills/tidy/run.sh",
        "./skills/tidy/tool",
    }


@pytest.mark.parametrize(
    "name", ["a b.py", "x;rm -rf.py", "$(id).py", "a'b.py", "*.py", "new\nline.py"]
)
def test_script_name_with_shell_characters_is_not_granted(folder: Path, name: str) -> None:
    (folder / "skills" / "brief" / name).write_text("")
    assert not any(name in command for command in grants_for(Access.WORKSPACE, folder).commands)


def test_links_are_not_granted(folder: Path) -> None:
    (folder / "skills" / "brief" / "link.py").symlink_to("/bin/true")
    (folder / "skills" / "outside").symlink_to("/usr/bin")
    commands = grants_for(Access.WORKSPACE, folder).commands
    assert not any("link.py" in command or "outside" in command for command in commands)


def test_only_a_trigger_has_workspace_access_by_default(tmp_path: Path) -> None:
    (tmp_path / "butler.toml").write_text('[butler]\nname = "x"\nport = 40199\n')
    config = load_butler_config(tmp_path, Settings.from_environ({}))

    def level(source: str) -> Access:
        return level_of(SessionRequest(uuid7(), "p", source), config)

    assert level("trigger") is Access.WORKSPACE
    assert level("route") is Access.SEALED
    assert level("schedule:daily") is Access.SEALED
    assert level("classify") is Access.SEALED


def test_the_configuration_grants_more(tmp_path: Path) -> None:
    (tmp_path / "butler.toml").write_text(
        '[butler]\nname = "x"\nport = 40199\n[butler.runtime]\n'
        'access = "full"\nschedule_access = "workspace"\nrouted_access = "workspace"\n'
    )
    config = load_butler_config(tmp_path, Settings.from_environ({}))
    found = [
        level_of(SessionRequest(uuid7(), "p", source), config)
        for source in ("trigger", "schedule:daily", "route", "classify")
    ]
    assert found == [Access.FULL, Access.WORKSPACE, Access.WORKSPACE, Access.SEALED]


def test_task_has_the_access_of_the_message_that_made_it(tmp_path: Path) -> None:
    (tmp_path / "butler.toml").write_text(
        '[butler]\nname = "x"\nport = 40199\n[butler.runtime]\nschedule_access = "full"\n'
    )
    config = load_butler_config(tmp_path, Settings.from_environ({}))
    request = RequestContext(
        uuid7(), datetime.now(UTC), "console", "console:owner", "owner", sender_roles=("owner",)
    )
    assert level_of(SessionRequest(uuid7(), "p", "schedule:x", request), config) is Access.SEALED
    assert level_of(SessionRequest(uuid7(), "p", "schedule:x"), config) is Access.FULL
