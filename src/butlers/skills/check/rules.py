"""``check``: apply every rule to a skill's folder and report all problems at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from butlers.config.locate import Place
from butlers.domain.diagnostic import Diagnostic, Severity
from butlers.domain.errors import SkillError, SkillTooLarge
from butlers.skills import names
from butlers.skills.check import content
from butlers.skills.findings import MAX_FINDINGS, Findings, printable, quoted
from butlers.skills.formats.base import Reading
from butlers.skills.reader import read_skill, read_skill_md
from butlers.skills.skill import SkillSpec
from butlers.skills.tree import EntryKind, Tree, TreeEntry, resolve_inside, walk

ENV_EXAMPLE = ".env.example"
# Only the first bytes of a file are searched.
_MAX_TEXT = 1024 * 1024
_TEXT_SUFFIXES = frozenset(
    (
        ".md",
        ".mdx",
        ".txt",
        ".json",
        ".yaml",
        ".yml",
        ".toml",
        ".html",
        ".xml",
        ".csv",
        ".cfg",
        ".ini",
    )
)
# Files below these folders are read or run, whatever their suffix.
_USED_FOLDERS = ("context/", "references/", "scripts/")
_BINARY = 8192  # a file with a zero byte among the first so many is binary
# Keys that a manifest spells differently from the fields of SkillSpec.
_MANIFEST_KEYS = {
    "name": "id",
    "title": "name",
    "allowed_tools": "allowedTools",
    "trigger_patterns": "triggerPatterns",
    "env_vars": "envVars",
    "mcp_servers": "mcpServers",
    "node_version": "nodeVersion",
    "system_packages": "systemPackages",
}


@dataclass(frozen=True, slots=True)
class Checked:
    """Result for one folder. A skill with errors is neither registered nor written."""

    folder: Path
    reading: Reading
    diagnostics: tuple[Diagnostic, ...]

    @property
    def skill(self) -> SkillSpec | None:
        return self.reading.skill

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        return tuple(found for found in self.diagnostics if found.severity is Severity.ERROR)

    def errors_in(self, folder: Path) -> tuple[Diagnostic, ...]:
        """Return the errors with paths below ``folder``, from which this folder was copied."""
        here, there = (Path(printable(str(path))) for path in (self.folder, folder))
        return tuple(
            replace(found, file=there / found.file.relative_to(here)) for found in self.errors
        )

    @property
    def valid(self) -> bool:
        return self.skill is not None and not self.errors


def check(folder: Path) -> Checked:
    """Read the skill and apply every rule."""
    reading = read_skill(folder)
    findings = Findings(folder)
    _check_folder_name(folder, findings)
    try:
        tree = walk(folder)
    except SkillTooLarge as error:
        code = "tree-too-large" if " MB " in error.message else "tree-too-many"
        findings.add(code, error.message, hint=error.hint)
    except SkillError as error:
        if reading.skill is not None:  # else the reader has reported it
            findings.add("skill-unreadable", error.message, hint=error.hint)
    else:
        _check_tree(tree, findings)
        if reading.skill is not None:
            _check_pack(reading, reading.skill, tree, findings)
            _check_contents(reading.skill, tree, findings)
            _check_escapes(reading, reading.skill, tree, findings)
    known = set(reading.diagnostics)
    rest = tuple(found for found in findings.diagnostics if found not in known)
    return Checked(folder, reading, (*reading.diagnostics, *rest))


def _check_folder_name(folder: Path, findings: Findings) -> None:
    name, _at, version = folder.name.partition("@")
    if names.is_version(version):  # a folder of the registry
        return
    if not names.is_kebab(folder.name):
        near = names.slug(name)
        findings.add(
            "folder-name",
            f"the folder name {quoted(folder.name)} is not kebab-case",
            hint=f"rename it to {near}" if near else "lower-case letters, digits, single hyphens",
        )


def _check_tree(tree: Tree, findings: Findings) -> None:
    for entry in tree.entries:
        path = tree.root / entry.path
        if entry.kind is EntryKind.OTHER:
            findings.add(
                "tree-special-file", f"{quoted(entry.path)} is not a regular file", file=path
            )
        elif entry.kind is EntryKind.LINK and resolve_inside(path, tree.root) is None:
            findings.add(
                "tree-link-leaves" if path.exists() else "tree-link-broken",
                f"{quoted(entry.path)} points to {quoted(entry.target or '')}",
                file=path,
                hint="copy the file into the skill instead",
            )
        if names.inner_path(entry.path) is None:
            findings.add(
                "tree-path", f"{quoted(entry.path)} is not a portable name", file=tree.root
            )


def _check_pack(reading: Reading, skill: SkillSpec, tree: Tree, findings: Findings) -> None:
    file = tree.root / ("manifest.json" if skill.has_manifest else "SKILL.md")
    for path in skill.context:
        if not (tree.root / path).is_file():
            at = reading.where("context", path)
            findings.add(
                "manifest-context-missing",
                f"{path} does not exist",
                file=file,
                at=at,
                entry="context",
            )
    for path in skill.scripts:
        _check_script(path, reading, tree, file, findings)
    if skill.env_vars and tree.get(ENV_EXAMPLE) is None:
        findings.add(
            "manifest-env-example",
            f"{ENV_EXAMPLE} must list the variables to set: {', '.join(skill.env_vars)}",
            file=file,
            at=reading.where("envVars"),
            entry="envVars",
        )


def _check_script(path: str, reading: Reading, tree: Tree, file: Path, findings: Findings) -> None:
    script = tree.root / path
    if not script.is_file():
        code, message, hint = "manifest-script-missing", f"{path} does not exist", None
    elif not script.stat().st_mode & 0o111:
        code, message = "manifest-script-not-executable", f"{path} is not executable"
        hint = f"chmod +x {path}"
    else:
        return
    at = reading.where("scripts", path)
    findings.add(code, message, file=file, at=at, entry="scripts", hint=hint)


def _check_contents(skill: SkillSpec, tree: Tree, findings: Findings) -> None:
    declared = set(skill.env_vars)
    for entry in tree.files():
        file = tree.root / entry.path
        text = _text_of(file, entry, skill)
        if text is None:
            continue
        for code, message, place in _suspicions(text):
            findings.add(code, message, file=file, at=place)
        for name, place in content.read_variables(entry.path, text):
            if name not in declared:
                findings.add(
                    "content-undeclared-env",
                    f"{name} is read but not declared",
                    file=file,
                    at=place,
                    entry=name,
                    hint="declare it in envVars: a script gets declared variables only",
                )


def _suspicions(text: str) -> Iterator[tuple[str, str, Place]]:
    for what, place in content.hidden_characters(text):
        yield "skill-hidden-unicode", f"an invisible {what}", place
    for what, place in content.piped_shells(text):
        yield "content-pipe-to-shell", quoted(what), place


def _check_escapes(reading: Reading, skill: SkillSpec, tree: Tree, findings: Findings) -> None:
    """Search the parsed values too: JSON and YAML can write any character as an escape."""
    main = "manifest.json" if skill.has_manifest else "SKILL.md"
    _check_values(reading, _spelled_file(tree, main), findings)
    if skill.has_manifest and skill.has_skill_md:  # other clients show its fields to a model
        from_text = read_skill_md(tree.root)
        if from_text is not None:
            _check_values(from_text, _spelled_file(tree, "SKILL.md"), findings)


def _spelled_file(tree: Tree, proper: str) -> Path:
    """Return the file with the spelling that the folder has."""
    spelled = (entry.path for entry in tree.entries if entry.path.lower() == proper.lower())
    return tree.root / next(spelled, proper)


def _check_values(reading: Reading, file: Path, findings: Findings) -> None:
    if reading.skill is None:
        return
    written = _read_text(file) or ""
    escaped = (
        (code, message, key)
        for key, text in _keys_and_texts(reading.skill)
        for code, message, _place in _suspicions(text)
        if text not in written  # else it is already reported at its place
    )
    for code, message, key in islice(escaped, MAX_FINDINGS):
        findings.add(code, f"{message}, as an escape", file=file, at=reading.where(key), entry=key)


def _keys_and_texts(skill: SkillSpec) -> Iterator[tuple[str, str]]:
    """Yield every text of a skill with its manifest key."""
    for one in fields(skill):
        key = _MANIFEST_KEYS.get(one.name, one.name)
        yield from ((key, text) for text in _texts(getattr(skill, one.name)))


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for key, item in value.items():
                yield from (key, *_texts(item))
        case list() | tuple():
            for item in value:
                yield from _texts(item)
        case _ if is_dataclass(value):
            for one in fields(value):
                yield from _texts(getattr(value, one.name))


def _text_of(path: Path, entry: TreeEntry, skill: SkillSpec) -> str | None:
    """Return the file's text, or None for a file that is neither read as text nor run."""
    suffix = PurePosixPath(entry.path).suffix.lower()
    known = suffix in _TEXT_SUFFIXES or names.script_language(entry.path) is not None
    if known or entry.path in skill.context:
        return _read_text(path)
    used = entry.executable or entry.path.startswith(_USED_FOLDERS) or entry.path in skill.scripts
    text = _read_text(path) if used else None
    binary = text is not None and "\0" in text[:_BINARY] and not text.startswith("#!")
    return None if binary else text


def _read_text(path: Path) -> str | None:
    try:
        with open(path, "rb") as stream:
            return stream.read(_MAX_TEXT).decode("utf-8", "replace")
    except OSError:
        return None  # hashing and copying reject an unreadable file
