"""System packages that a skill names: found by the package manager's files or as a program."""

from __future__ import annotations

from pathlib import Path

from butlers.skills.scripts.system_packages import missing_packages


def test_packages_are_found_as_program_or_as_installed_package(tmp_path: Path) -> None:
    programs, dpkg, apk = tmp_path / "bin", tmp_path / "info", tmp_path / "installed"
    programs.mkdir()
    (programs / "ffmpeg").write_text("#!/bin/sh\n")
    (programs / "ffmpeg").chmod(0o755)
    dpkg.mkdir()
    for name in ("libgl1:amd64.list", "zip.list", "notes.txt"):
        (dpkg / name).write_text("")
    apk.write_text("P:poppler-utils\nV:1\n\nP:curl\n")
    wanted = ("ffmpeg", "libgl1", "zip", "poppler-utils", "notes", "imagemagick")
    found = missing_packages(wanted, str(programs), dpkg=dpkg, apk=apk)
    assert found == ("notes", "imagemagick")


def test_without_a_package_manager_only_programs_are_found(tmp_path: Path) -> None:
    nowhere = tmp_path / "none"
    assert missing_packages(("sh", "libgl1"), "/bin", dpkg=nowhere, apk=nowhere) == ("libgl1",)
