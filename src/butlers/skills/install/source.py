"""An opened source of skills: a folder, an archive, a commit of a git repository, or an MCP server."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from butlers.skills.findings import printable
from butlers.skills.install.archive import unpack
from butlers.skills.install.collection import (
    SkillCollection,
    find_skills,
    folder_files,
    read_file_of,
)
from butlers.skills.install.git import GitRepository, GitSource, open_repository
from butlers.skills.install.mcp_source import McpSource, ServerSource
from butlers.skills.names import slug

_ARCHIVES = (".zip", ".skill", ".tar.gz", ".tgz")


@dataclass(frozen=True, slots=True)
class FolderSource:
    """A folder, or an unpacked archive. ``address`` is the path that the person named."""

    root: Path
    address: Path
    commit: str | None = None

    def collection(self) -> SkillCollection:
        return find_skills(folder_files(self.root), read_file_of(self.root))

    def folder(self, path: str) -> Path:
        return self.root / path

    def origin(self, path: str) -> str:
        """Return the address of one skill in this source."""
        if self.address.is_dir():
            return printable(str(self.address / path))
        return printable(f"{self.address}#{path}" if path else str(self.address))


@dataclass(frozen=True, slots=True)
class RepositorySource:
    """A fetched commit. Only folders that are asked for are written, below ``scratch``."""

    repository: GitRepository
    scratch: Path

    @property
    def commit(self) -> str:
        return self.repository.commit

    def collection(self) -> SkillCollection:
        return find_skills(self.repository.files(), self.repository.read_file)

    def folder(self, path: str) -> Path:
        around = Path(tempfile.mkdtemp(dir=self.scratch))
        return self.repository.write(path, around)

    def origin(self, path: str) -> str:
        source = self.repository.source
        folder = "/".join(part for part in (source.folder, path) if part)
        return replace(source, folder=folder).origin


OpenedSource = FolderSource | RepositorySource | ServerSource
SkillAddress = Path | GitSource | McpSource


@contextmanager
def open_source(source: SkillAddress) -> Iterator[OpenedSource]:
    """Yield the opened source; fetched and unpacked files are removed at the end."""
    if isinstance(source, Path) and source.is_dir():
        yield FolderSource(source.resolve(), source.resolve())
        return
    with tempfile.TemporaryDirectory(prefix="butlers-skill-") as scratch:
        if isinstance(source, GitSource):
            yield RepositorySource(open_repository(source, Path(scratch)), Path(scratch))
        elif isinstance(source, McpSource):
            yield ServerSource(source, Path(scratch))
        else:
            folder = Path(scratch) / _stem(source)
            folder.mkdir()
            yield FolderSource(unpack(source, folder), source.resolve())


def _stem(archive: Path) -> str:
    suffix = next((suffix for suffix in _ARCHIVES if archive.name.endswith(suffix)), "")
    return slug(archive.name.removesuffix(suffix)) or "skill"
