"""Find the skills of a collection: a repository, a plugin marketplace, or a folder of skills."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from butlers.domain.errors import SkillNotFound, SkillTooLarge
from butlers.skills import names
from butlers.skills.findings import printable, quoted
from butlers.skills.reader import MAX_FILE, SKIPPED_FOLDERS

MAX_COLLECTION_FILES = 500_000
MAX_MANIFESTS = 5_000  # manifest.json and plugin.json files that are read
_MARKETPLACE = ".claude-plugin/marketplace.json"
_PLUGIN = ".claude-plugin/plugin.json"
_MAX_SHOWN = 30

ReadFile = Callable[[str], bytes | None]


@dataclass(frozen=True, slots=True)
class CollectionSkill:
    """One skill of a collection. ``path`` is its folder, empty for the root; ``plugin`` and ``version``
    are those of the plugin that it belongs to."""

    path: str = ""
    plugin: str = ""
    version: str | None = None

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    @property
    def label(self) -> str:
        return f"{self.plugin}:{self.name}" if self.plugin else self.name


@dataclass(frozen=True, slots=True)
class SkillCollection:
    """Skills sorted by path. ``elsewhere`` are plugins of a marketplace that lie in other repositories."""

    skills: tuple[CollectionSkill, ...] = ()
    elsewhere: tuple[str, ...] = ()

    def choose(self, wanted: Sequence[str]) -> tuple[CollectionSkill, ...]:
        """Return the skills with these names, `plugin:name` labels or paths. Raise SkillNotFound."""
        return tuple(self._one(name) for name in wanted)

    def _one(self, wanted: str) -> CollectionSkill:
        path = wanted.strip("/").removeprefix("./")
        found = [skill for skill in self.skills if skill.path == path]
        found = found or [one for one in self.skills if wanted in (one.name, one.label)]
        if len(found) == 1:
            return found[0]
        if found:
            raise SkillNotFound(
                f"{len(found)} skills are named {quoted(wanted)}",
                hint=f"name its folder: {listed([one.path for one in found])}",
            )
        raise SkillNotFound(
            f"there is no skill {quoted(wanted)} in this collection",
            hint=f"it has {listed([one.name for one in self.skills]) or 'no skill'}",
        )


def listed(items: Sequence[str]) -> str:
    """Return the items separated by commas, cut after some."""
    more = f" and {len(items) - _MAX_SHOWN} more" if len(items) > _MAX_SHOWN else ""
    return printable(", ".join(items[:_MAX_SHOWN])) + more


@dataclass(frozen=True, slots=True)
class _Plugin:
    root: str  # its folder, empty for the root of the collection
    name: str
    version: str | None
    skills: frozenset[str] = frozenset()  # folders that it lists; empty: all below its root

    def holds(self, path: str) -> bool:
        if self.skills:
            return path in self.skills
        return not self.root or path == self.root or path.startswith(f"{self.root}/")


def find_skills(paths: Iterable[str], read: ReadFile) -> SkillCollection:
    """Find the skills among the files of a tree. ``read`` returns the content of one of them."""
    folders: set[str] = set()
    manifests: list[str] = []
    plugin_files: list[str] = []
    for path in paths:
        folder, _slash, name = path.rpartition("/")
        if name.lower() == "skill.md":
            folders.add(folder)
        elif name == "manifest.json" and len(manifests) < MAX_MANIFESTS:
            manifests.append(path)
        elif path.endswith((_MARKETPLACE, _PLUGIN)) and len(plugin_files) < MAX_MANIFESTS:
            plugin_files.append(path)
    folders |= {path.rpartition("/")[0] for path in manifests if _is_pack(_json(read(path)))}
    plugins, elsewhere = _plugins(plugin_files, read)
    skills = (_skill(folder, plugins) for folder in sorted(folders))
    return SkillCollection(tuple(skills), tuple(elsewhere))


def _skill(folder: str, plugins: Sequence[_Plugin]) -> CollectionSkill:
    holding = [plugin for plugin in plugins if plugin.holds(folder)]
    nearest = max(holding, key=_nearness, default=None)
    if nearest is None:
        return CollectionSkill(folder)
    return CollectionSkill(folder, nearest.name, nearest.version)


def _nearness(plugin: _Plugin) -> tuple[bool, int, bool]:
    """Prefer a plugin that lists the skill, then the innermost, then one with a version."""
    return bool(plugin.skills), len(plugin.root), plugin.version is not None


def _plugins(files: Sequence[str], read: ReadFile) -> tuple[list[_Plugin], list[str]]:
    plugins: list[_Plugin] = []
    elsewhere: list[str] = []
    for file in files:
        root = file.removesuffix(_MARKETPLACE if file.endswith(_MARKETPLACE) else _PLUGIN)
        document = _json(read(file))
        if file.endswith(_PLUGIN):
            plugins += _plugin(document, root.strip("/"))
            continue
        for entry in _entries(document):
            source = entry.get("source", "./")
            folder = _joined(root, source) if isinstance(source, str) else None
            if folder is None:
                elsewhere.append(printable(str(entry.get("name", "")))[: names.MAX_NAME])
            else:
                plugins += _plugin(entry, folder)
    return plugins, elsewhere


def _plugin(document: Mapping[str, Any], root: str) -> Iterator[_Plugin]:
    name, version = document.get("name"), document.get("version")
    if not isinstance(name, str) or not name:
        return
    written = document.get("skills")
    written = [written] if isinstance(written, str) else written
    paths = [path for path in written if isinstance(path, str)] if written else []
    folders = frozenset(path for path in (_joined(root, one) for one in paths) if path is not None)
    meant = names.lenient_version(version) if isinstance(version, str) else None
    yield _Plugin(root, printable(name)[: names.MAX_NAME], meant, folders)


def _entries(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    plugins = document.get("plugins")
    return [one for one in plugins if isinstance(one, dict)] if isinstance(plugins, list) else []


def _joined(root: str, written: str) -> str | None:
    """Return a folder of the collection, or None for an address or a path that leaves it."""
    path = "/".join(part for part in f"{root}/{written}".split("/") if part not in ("", "."))
    if "://" in written or not path:
        return None if "://" in written else ""
    return names.inner_path(path)


def _is_pack(document: Mapping[str, Any]) -> bool:
    return all(isinstance(document.get(key), str) for key in ("id", "version", "owner"))


def _json(content: bytes | None) -> Mapping[str, Any]:
    try:
        document = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def folder_files(root: Path) -> Iterator[str]:
    """Yield the paths of the files below a folder. Raise SkillTooLarge beyond the limit."""
    count = 0
    for folder, below, files in os.walk(root):
        below[:] = sorted(name for name in below if name not in SKIPPED_FOLDERS)
        inside = os.path.relpath(folder, root)
        prefix = "" if inside == "." else f"{inside}/"
        count += len(files) + 1
        if count > MAX_COLLECTION_FILES:
            raise SkillTooLarge(
                f"{root} has more than {MAX_COLLECTION_FILES:,} files",
                hint="name a folder inside it",
            )
        yield from (f"{prefix}{name}" for name in files)


def read_file_of(root: Path) -> ReadFile:
    def read(path: str) -> bytes | None:
        try:
            file = root / path
            if file.is_symlink() or not file.is_file():
                return None
            with file.open("rb") as stream:
                return stream.read(MAX_FILE)
        except OSError:
            return None

    return read
