"""Untrusted archives: valid ones are unpacked, every attack is refused with its code."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from butlers.domain.errors import SkillArchiveRefused, SkillError, SkillPathRefused, SkillTooLarge
from butlers.skills.install import archive
from butlers.skills.install.archive import unpack

SKILL = b"---\nname: a-skill\ndescription: x\n---\nbody\n"


def zipped(path: Path, members: dict[str, bytes], modes: dict[str, int] | None = None) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (modes or {}).get(name, stat.S_IFREG | 0o644) << 16
            opened.writestr(info, content)
    return path


def tarred(
    path: Path, members: dict[str, bytes], infos: list[tarfile.TarInfo] | None = None
) -> Path:
    with tarfile.open(path, "w:gz") as opened:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.mode = 0o755 if name.endswith(".sh") else 0o644
            opened.addfile(info, io.BytesIO(content))
        for info in infos or ():
            opened.addfile(info)
    return path


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "outer" / "target"
    folder.mkdir(parents=True)
    return folder


def refused(file: Path, target: Path, kind: type[SkillError]) -> str:
    with pytest.raises(SkillError) as error:
        unpack(file, target)
    assert type(error.value) is kind
    assert {path.name for path in target.parent.iterdir()} == {"target"}
    assert {path.name for path in target.parent.parent.iterdir()} == {"outer", file.name}
    return error.value.message


@pytest.mark.parametrize("pack", [zipped, tarred])
@pytest.mark.parametrize("folder", ["", "a-skill/"])
def test_an_archive_is_unpacked_with_or_without_its_own_folder(
    tmp_path: Path, target: Path, pack: object, folder: str
) -> None:
    make = zipped if pack is zipped else tarred
    members = {
        f"{folder}SKILL.md": SKILL,
        f"{folder}scripts/a.sh": b"#!/bin/sh\n",
        f"{folder}.git/x": b"x",
    }
    file = make(tmp_path / "x", members)
    if make is zipped:
        file = zipped(tmp_path / "x", members, {f"{folder}scripts/a.sh": stat.S_IFREG | 0o755})
    root = unpack(file, target)
    assert root == (target / "a-skill" if folder else target)
    assert (root / "SKILL.md").read_bytes() == SKILL
    assert (root / "scripts/a.sh").stat().st_mode & 0o111
    assert not (root / "SKILL.md").stat().st_mode & 0o111
    assert not (root / ".git").exists()


@pytest.mark.parametrize("pack", ["zip", "tar"])
@pytest.mark.parametrize(
    "name", ["../evil", "a/../../evil", "/etc/evil", "..\\evil", "C:/evil", "a/\x01b", "x" * 600]
)
def test_path_outside_the_archive_is_refused(
    tmp_path: Path, target: Path, pack: str, name: str
) -> None:
    make = zipped if pack == "zip" else tarred
    file = make(tmp_path / "evil.bin", {"SKILL.md": SKILL, name: b"x"})
    refused(file, target, SkillPathRefused)


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)
def test_links_and_devices_in_a_tar_are_refused(tmp_path: Path, target: Path, kind: bytes) -> None:
    file = tarred(tmp_path / "x.tar.gz", {"SKILL.md": SKILL}, [link("key", "/etc/passwd", kind)])
    assert "'key'" in refused(file, target, SkillPathRefused)


def test_a_link_in_a_zip_is_refused(tmp_path: Path, target: Path) -> None:
    file = zipped(
        tmp_path / "x.zip",
        {"SKILL.md": SKILL, "key": b"/etc/passwd"},
        {"key": stat.S_IFLNK | 0o777},
    )
    assert "'key'" in refused(file, target, SkillPathRefused)


def test_folder_outside_the_archive_is_refused(tmp_path: Path, target: Path) -> None:
    folder = tarfile.TarInfo("../out")
    folder.type = tarfile.DIRTYPE
    refused(tarred(tmp_path / "x.tgz", {"SKILL.md": SKILL}, [folder]), target, SkillPathRefused)
    refused(zipped(tmp_path / "x.tgz", {"../out/": b""}), target, SkillPathRefused)


@pytest.mark.parametrize("names", [("a", "a"), ("A", "a"), ("a", "./a")])
def test_duplicate_file_names_are_refused(
    tmp_path: Path, target: Path, names: tuple[str, str]
) -> None:
    infos = [tarfile.TarInfo(name) for name in names]
    refused(tarred(tmp_path / "x.tgz", {}, infos), target, SkillPathRefused)


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path: Path, target: Path) -> None:
    refused(zipped(tmp_path / "x.zip", {"a": b"x", "a/b": b"y"}), target, SkillArchiveRefused)


@pytest.mark.parametrize("pack", ["zip", "tar"])
def test_decompression_bomb_is_refused_by_its_ratio(
    tmp_path: Path, target: Path, pack: str
) -> None:
    make = zipped if pack == "zip" else tarred
    file = make(tmp_path / "x.bin", {"SKILL.md": SKILL, "zeros": b"\0" * 5_000_000})
    assert "times its size" in refused(file, target, SkillTooLarge)


def test_unpacked_size_over_the_limit_is_refused(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_BYTES", 1000)
    file = zipped(tmp_path / "x.zip", {"SKILL.md": SKILL, "more": bytes(range(250)) * 4})
    refused(file, target, SkillTooLarge)


def test_endless_header_is_refused(tmp_path: Path, target: Path) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 60_000_000
    file = tmp_path / "x.tgz"
    with gzip.open(file, "wb", compresslevel=1) as stream:
        stream.write(header.tobuf(tarfile.USTAR_FORMAT))
        for _ in range(60):
            stream.write(b"\0" * 1_000_000)
    refused(file, target, SkillTooLarge)


@pytest.mark.parametrize("pack", ["zip", "tar"])
def test_file_count_over_the_limit_is_refused(tmp_path: Path, target: Path, pack: str) -> None:
    make = zipped if pack == "zip" else tarred
    refused(make(tmp_path / "x.bin", {f"f{n}": b"" for n in range(1001)}), target, SkillTooLarge)


def test_zip_with_a_huge_directory_is_refused_before_reading_it(
    tmp_path: Path, target: Path
) -> None:
    file = zipped(tmp_path / "x.zip", {f"{'f' * 200}{n}": b"" for n in range(5000)})
    assert "lists too many files" in refused(file, target, SkillTooLarge)


def test_oversized_archive_is_not_opened(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_ARCHIVE", 10)
    refused(zipped(tmp_path / "x.zip", {"SKILL.md": SKILL}), target, SkillTooLarge)


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04junk", b"\x1f\x8bjunk", b"hello", b"PK\x05\x06" + b"\0" * 18]
)
def test_file_that_is_not_an_archive_is_refused(
    tmp_path: Path, target: Path, content: bytes
) -> None:
    file = tmp_path / "x.zip"
    file.write_bytes(content)
    refused(file, target, SkillArchiveRefused)


def test_truncated_archive_is_refused(tmp_path: Path, target: Path) -> None:
    file = tarred(tmp_path / "x.tgz", {"SKILL.md": SKILL, "data": os.urandom(200_000)})
    file.write_bytes(file.read_bytes()[:100_000])
    refused(file, target, SkillArchiveRefused)


def test_an_encrypted_zip_is_refused(tmp_path: Path, target: Path) -> None:
    file = zipped(tmp_path / "x.zip", {"SKILL.md": SKILL})
    content = bytearray(file.read_bytes())
    content[content.find(b"PK\x01\x02") + 8] |= 1
    content[6] |= 1
    file.write_bytes(content)
    refused(file, target, SkillArchiveRefused)


def test_missing_archive_is_an_error(tmp_path: Path, target: Path) -> None:
    with pytest.raises(SkillArchiveRefused):
        unpack(tmp_path / "gone.zip", target)


@pytest.mark.parametrize("make", [zipped, tarred])
@pytest.mark.parametrize(
    "names",
    [("caf\u00e9.md", "cafe\u0301.md"), ("\u00c9.md", "e\u0301.md")],
    ids=["form", "form-and-case"],
)
def test_names_that_differ_in_unicode_form_are_refused(
    tmp_path: Path, target: Path, make: Callable[..., Path], names: tuple[str, str]
) -> None:
    """One file replaces the other on a file system that normalizes names."""
    file = make(tmp_path / "x", {"SKILL.md": SKILL, **dict.fromkeys(names, b"x")})
    assert "twice" in refused(file, target, SkillPathRefused)


def test_scripts_of_a_zip_without_mode_bits_are_executable(tmp_path: Path, target: Path) -> None:
    """Archives made on systems without these bits would otherwise have no script that may run."""
    members = {"SKILL.md": SKILL, "scripts/a.py": b"print(1)\n", "scripts/data.bin": b"\x00"}
    folder = unpack(zipped(tmp_path / "a.zip", members, dict.fromkeys(members, 0o600)), target)
    modes = {path.name: path.stat().st_mode & 0o111 for path in folder.rglob("*.*")}
    assert {name for name, mode in modes.items() if mode} == {"a.py"}
