"""The sweep of leftovers removes only what killed processes left, wherever links point."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from butlers.process import leftovers
from butlers.process.leftovers import temporary_folder
from butlers.sessions.workspace import FOLDER, Workspaces

PREFIX = "butlers-attack-"


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """Folder of the owner. It has the mark of ours, which a hostile process can plant."""
    return write_folder(tmp_path / "victim")


def write_folder(folder: Path) -> Path:
    (folder / "letters").mkdir(parents=True)
    (folder / ".butlers").touch()
    (folder / "letters" / "one.txt").write_text("kept")
    return folder


def is_whole(victim: Path) -> bool:
    return (victim / "letters" / "one.txt").is_file() and (victim / ".butlers").is_file()


def swap_before_removal(monkeypatch: pytest.MonkeyPatch, left: Path, victim: Path) -> None:
    """Put the victim in the place of a folder that has been checked and locked."""

    def swapped(_folder: Path) -> Iterator[int]:
        left.rename(left.with_name("aside"))
        victim.rename(left)
        return iter(())

    monkeypatch.setattr(leftovers, "_processes_in", swapped)


def test_folder_swapped_after_the_check_is_not_removed(
    around: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process moves the owner's folder to the path of a leftover between check and removal."""
    left = write_folder(around / f"{PREFIX}left")
    swap_before_removal(monkeypatch, left, victim)
    with temporary_folder(PREFIX):
        assert is_whole(left)


def test_parent_swapped_for_a_link_after_the_check_is_not_followed(
    around: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process replaces the folder above a leftover by a link between check and removal."""
    write_folder(around / f"{PREFIX}left")
    elsewhere = tmp_path / "elsewhere"
    victim = write_folder(elsewhere / f"{PREFIX}left")

    def swapped(_folder: Path) -> Iterator[int]:
        around.rename(tmp_path / "aside")
        around.symlink_to(elsewhere)
        return iter(())

    monkeypatch.setattr(leftovers, "_processes_in", swapped)
    with temporary_folder(PREFIX):
        assert is_whole(victim)


def test_own_folder_swapped_during_use_is_not_removed(around: Path, victim: Path) -> None:
    """A script moves its scratch folder away and the owner's folder to its path."""
    with temporary_folder(PREFIX) as scratch:
        scratch.rename(around / "aside")
        victim.rename(scratch)
    assert is_whole(scratch)


def test_link_named_like_a_leftover_is_not_followed(around: Path, victim: Path) -> None:
    """A process plants a link to the owner's folder among the leftovers, and one inside a leftover."""
    link = around / f"{PREFIX}link"
    link.symlink_to(victim)
    left = write_folder(around / f"{PREFIX}left")
    (left / "inside").symlink_to(victim)
    (left / "letters" / "inside").symlink_to(victim)
    with temporary_folder(PREFIX):
        assert not left.exists()
        assert link.is_symlink()
    assert is_whole(victim)


@pytest.mark.parametrize("replaced", [FOLDER, f"{FOLDER}/health"])
def test_sessions_folder_replaced_by_a_link_is_not_swept(
    tmp_path: Path, victim: Path, replaced: str
) -> None:
    """A session replaces the folder of workspaces by a link, so that the next start sweeps its target."""
    home = tmp_path / "home"
    (home / replaced).parent.mkdir(parents=True)
    target = tmp_path / "target"
    inner = target / "health" if replaced == FOLDER else target
    inner.mkdir(parents=True)
    shutil.move(victim, inner / "victim")
    (home / replaced).symlink_to(target)
    workspaces = Workspaces(home, "health", tmp_path)
    workspaces.take()
    workspaces.release()
    assert is_whole(inner / "victim")


def test_workspaces_of_a_killed_daemon_are_removed(tmp_path: Path) -> None:
    """A killed daemon leaves workspaces with links in them: the next start removes them, not the targets."""
    left = tmp_path / "home" / FOLDER / "health" / "0123"
    victim = write_folder(tmp_path / "victim")
    left.mkdir(parents=True)
    (left / "link").symlink_to(victim)
    workspaces = Workspaces(tmp_path / "home", "health", tmp_path)
    workspaces.take()
    workspaces.release()
    assert list(left.parent.iterdir()) == []
    assert is_whole(victim)
