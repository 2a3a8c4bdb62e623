"""A butler's skills as others may copy them (SEP-2640): every file with its hash and size.

Nothing outside a skill's folder is read: a skill with a link in it is not offered. Hidden files stay at home,
and so does a skill with a file that holds a known secret, or a text that looks like one.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import structlog

from butlers.domain.errors import SkillError, SkillNotFound, SkillPathRefused, SkillTooLarge
from butlers.domain.redaction import redactor
from butlers.skills.formats.skill_md import written_fields
from butlers.skills.skill_set import ButlerSkill, ButlerSkillSet
from butlers.skills.tree import IGNORED_NAMES, EntryKind, TreeEntry, translate_os_errors, walk

log = structlog.get_logger()

MAIN_FILE = "SKILL.md"
MAX_OFFERED_SKILLS = 1_000
# The specification's limits for one skill.
MAX_OFFERED_FILES = 512
MAX_OFFERED_BYTES = 16 * 1024 * 1024
_EXAMPLE = ".env.example"  # names of variables; packs must have it
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class OfferedFile:
    path: str
    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class OfferedSkill:
    """``fields`` are those of SKILL.md, as it writes them."""

    name: str
    fields: Mapping[str, Any]
    files: tuple[OfferedFile, ...]


@dataclass(frozen=True, slots=True)
class SkillOffers:
    """The offered skills of one butler, read from disk each time: drafts are not among them."""

    skill_set: ButlerSkillSet

    def skills(self) -> list[OfferedSkill]:
        """Return the skills that may be copied. Others are logged with the reason."""
        return list(islice(self._readable(), MAX_OFFERED_SKILLS))

    def skill(self, name: str) -> OfferedSkill:
        """Return one skill. Raise SkillError if it is not offered."""
        return _offered(self._entry(name))

    def content(self, name: str, path: str) -> bytes:
        """Return the bytes of one file. Raise SkillError if it is not offered."""
        entry = self._entry(name)
        for file in _files(entry):
            if file.path == path:
                return _content(entry.pack.folder, file)
        raise SkillNotFound(f"{name} has no file {path!r}")

    def _readable(self) -> Iterator[OfferedSkill]:
        for entry in self._entries():
            try:
                yield _offered(entry)
            except SkillError as error:
                log.warning("skill not offered", skill=entry.name, error=error.message)

    def _entries(self) -> Iterator[ButlerSkill]:
        for entry in self.skill_set.skills():
            if not entry.draft and (entry.pack.folder / MAIN_FILE).is_file():
                yield entry

    def _entry(self, name: str) -> ButlerSkill:
        for entry in self._entries():
            if entry.name == name:
                return entry
        raise SkillNotFound(f"no skill {name!r} is offered")


def _offered(entry: ButlerSkill) -> OfferedSkill:
    folder, files = entry.pack.folder, []
    fields: Mapping[str, Any] = {}
    for file in _files(entry):
        content = _content(folder, file)
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        files.append(OfferedFile(file.path, digest, len(content)))
        if file.path == MAIN_FILE:
            fields = written_fields(folder / MAIN_FILE, content)
    return OfferedSkill(entry.name, fields, tuple(files))


def _files(entry: ButlerSkill) -> tuple[TreeEntry, ...]:
    """Return the files to offer. Raise SkillError for a changed pack, a link, or too much."""
    folder = entry.pack.folder
    if folder.is_symlink():
        raise SkillPathRefused(f"{folder} is a link")
    entry.verify()
    found = [one for one in walk(folder, skip=IGNORED_NAMES).entries if not _is_hidden(one.path)]
    for one in found:
        if one.kind not in (EntryKind.FILE, EntryKind.FOLDER):
            raise SkillPathRefused(f"{folder / one.path} is a {one.kind}, not a file")
    files = tuple(one for one in found if one.kind is EntryKind.FILE)
    if len(files) > MAX_OFFERED_FILES or sum(one.size for one in files) > MAX_OFFERED_BYTES:
        raise SkillTooLarge(
            f"{folder}: more than {MAX_OFFERED_FILES} files, or {MAX_OFFERED_BYTES >> 20} MB"
        )
    return files


def _is_hidden(path: str) -> bool:
    return path != _EXAMPLE and any(part.startswith(".") for part in path.split("/"))


def _content(folder: Path, file: TreeEntry) -> bytes:
    """Read a listed file. No link is followed, even if one has replaced a folder since."""
    *folders, name = file.path.split("/")
    with translate_os_errors(folder / file.path), ExitStack() as opened:
        inner = os.open(folder, _FOLDER)
        opened.callback(os.close, inner)
        for part in folders:
            inner = os.open(part, _FOLDER, dir_fd=inner)
            opened.callback(os.close, inner)
        with open(os.open(name, _FILE, dir_fd=inner), "rb") as stream:
            is_file = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
            content = stream.read(file.size + 1) if is_file else b""
    if len(content) != file.size:
        raise SkillError(f"{folder / file.path} changed while it was read", hint="try again")
    text = content.decode("utf-8", "replace")
    if redactor.scrub(text) is not text:
        raise SkillPathRefused(f"{folder / file.path} holds a secret, or looks like it")
    return content
