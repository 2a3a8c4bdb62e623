"""Search skills by words: registered ones and those of local collections, in an index on disk.

The index is a full-text table of SQLite with BM25 ranking. A collection is read again when its git commit,
or the time of its folder, has changed; a search reads the index only.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from butlers.config.files import make_private_folder
from butlers.domain.errors import SkillError
from butlers.skills.findings import printable
from butlers.skills.install.source import FolderSource
from butlers.skills.reader import read_skill
from butlers.skills.registry.registry import SkillRegistry

REGISTERED = "registered"
MAX_WORDS = 20
_FILE = "cache/skill-index.sqlite"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS sources (source TEXT PRIMARY KEY, signature TEXT NOT NULL);
CREATE VIRTUAL TABLE IF NOT EXISTS skills USING fts5(
    name, title, description, label UNINDEXED, path UNINDEXED, source UNINDEXED,
    tokenize = "porter unicode61 remove_diacritics 2", prefix = '2 3'
);
"""
_INSERT = (
    "INSERT INTO skills (name, title, description, label, path, source) VALUES (?, ?, ?, ?, ?, ?)"
)
# A word in the name counts more than one in the description.
_QUERY = """
SELECT label, description, path, source, bm25(skills, 10.0, 5.0, 1.0) AS score FROM skills
WHERE skills MATCH ? ORDER BY score, label LIMIT ?
"""
# Words that most descriptions contain.
_COMMON = frozenset({
    "a", "an", "and", "are", "as", "asked", "asks", "at", "by", "can", "for", "from", "how", "i", "in",
    "is", "it", "me", "my", "of", "on", "or", "skill", "that", "the", "this", "to", "use", "user",
    "uses", "when", "with",
})  # fmt: skip
_MAX_FIELD = 2_000  # characters of a description that are indexed


@dataclass(frozen=True, slots=True)
class IndexedSkill:
    """``label`` is how a person names it: id@version, or its name in a collection."""

    label: str
    name: str
    title: str
    description: str
    path: str


@dataclass(frozen=True, slots=True)
class FoundSkill:
    label: str
    description: str
    path: str
    source: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "skill": self.label,
            "description": self.description,
            "path": self.path,
            "source": self.source,
        }


@dataclass(frozen=True, slots=True)
class SkillIndex:
    """``home`` is BUTLERS_HOME. The file is a cache: a damaged one is made anew."""

    home: Path

    @property
    def file(self) -> Path:
        return self.home / _FILE

    def sources(self) -> tuple[str, ...]:
        """Return the indexed sources: ``registered``, and folders of collections."""
        return tuple(row[0] for row in self._run("SELECT source FROM sources ORDER BY source"))

    def refresh(
        self, source: str, signature: str, skills: Callable[[], Iterable[IndexedSkill]]
    ) -> bool:
        """Index the source again if its signature has changed. Return True if it was read."""
        known = self._run("SELECT signature FROM sources WHERE source = ?", source)
        if known == [(signature,)]:
            return False
        rows = [_row(skill, source) for skill in skills()]
        with closing(self._open()) as database, database:
            database.execute("DELETE FROM skills WHERE source = ?", (source,))
            database.executemany(_INSERT, rows)
            database.execute("REPLACE INTO sources VALUES (?, ?)", (source, signature))
        return True

    def forget(self, source: str) -> None:
        with closing(self._open()) as database, database:
            database.execute("DELETE FROM skills WHERE source = ?", (source,))
            database.execute("DELETE FROM sources WHERE source = ?", (source,))

    def search(self, words: Sequence[str], limit: int = 20) -> list[FoundSkill]:
        """Return the best matches. A word matches the beginnings of words, and their other forms."""
        expression = _expression(words)
        if not expression:
            return []
        rows = self._run(_QUERY, expression, limit)
        return [
            FoundSkill(label, description, path, source)
            for label, description, path, source, _score in rows
        ]

    def _run(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(self._open()) as database:
            return database.execute(statement, values).fetchall()

    def _open(self) -> sqlite3.Connection:
        make_private_folder(self.file.parent)
        try:
            return _connected(self.file)
        except sqlite3.DatabaseError:
            self.file.unlink(missing_ok=True)
        try:
            return _connected(self.file)
        except sqlite3.Error as error:
            raise SkillError(f"{self.file} cannot be opened: {error}") from error


def _connected(file: Path) -> sqlite3.Connection:
    database = sqlite3.connect(file)
    try:
        database.executescript(_SCHEMA)
    except sqlite3.Error:
        database.close()
        raise
    return database


def _row(skill: IndexedSkill, source: str) -> tuple[str, ...]:
    texts = (skill.name, skill.title, skill.description[:_MAX_FIELD], skill.label, skill.path)
    return (*(text.encode("utf-8", "replace").decode() for text in texts), source)


def _expression(words: Sequence[str]) -> str:
    """Return a full-text expression in which every word is quoted, so that none is an operator."""
    plain = (
        "".join(letter if letter.isalnum() else " " for letter in word).split() for word in words
    )
    terms = list(dict.fromkeys(term.lower() for group in plain for term in group))
    telling = [term for term in terms if term not in _COMMON] or terms[:1]
    return " OR ".join(f'"{term}"*' for term in telling[:MAX_WORDS])


def index_registered(index: SkillIndex, registry: SkillRegistry) -> bool:
    """Index the newest version of every registered skill, if the registry has changed."""
    try:
        signature = hashlib.sha256(registry.file.read_bytes()).hexdigest()
    except FileNotFoundError:
        signature = ""

    def skills() -> Iterator[IndexedSkill]:
        catalog = registry.catalog()
        for registered in catalog.skills.values():
            try:
                folder = registry.path(registered.id, registered.latest, catalog)
            except SkillError:
                continue  # `show` reports a changed skill; it is not offered
            yield from _indexed(folder, str(folder), f"{registered.id}@{registered.latest}")

    return index.refresh(REGISTERED, signature, skills)


def index_folder(index: SkillIndex, root: Path, *, again: bool = False) -> bool:
    """Index the skills of a collection, if it has changed or ``again`` is set."""
    root = root.resolve()
    if not root.is_dir():
        index.forget(str(root))
        raise SkillError(f"{root} is not a folder", hint="clone the collection first")
    if again:
        index.forget(str(root))

    def skills() -> Iterator[IndexedSkill]:
        for found in FolderSource(root, root).collection().skills:
            yield from _indexed(root / found.path, str(root / found.path), found.label or root.name)

    return index.refresh(str(root), _signature(root), skills)


def _indexed(folder: Path, path: str, label: str) -> Iterator[IndexedSkill]:
    skill = read_skill(folder).skill
    if skill is not None:
        title, description = printable(skill.title), printable(skill.description)
        yield IndexedSkill(printable(label), skill.name, title, description, printable(path))


def _signature(root: Path) -> str:
    """Return the commit of a git clone, else the time of the folder's last change."""
    try:
        head = (root / ".git" / "HEAD").read_text("utf-8", "replace")[:1000].strip()
        reference = head.removeprefix("ref: ")
        if reference == head:
            return head
        return (root / ".git" / reference).read_text("utf-8", "replace")[:100].strip()
    except OSError:
        return str(root.stat().st_mtime_ns)
