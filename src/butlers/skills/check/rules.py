"""``check``: apply every rule to a skill's folder and report all problems at once."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from butlers.config.locate import Place
from butlers.domain.diagnostic import Diagnostic, Severity
from butlers.domain.errors import SkillError, SkillTooLarge
from butlers.skills import names
from butlers.skills.check.content import hidden_characters, html_comments
from butlers.skills.check.pipes import piped_shells
from butlers.skills.check.references import missing_files
from butlers.skills.check.text import SkillText
from butlers.skills.check.variables import read_variables
from butlers.skills.findings import Findings, printable, quoted
from butlers.skills.formats.base import Reading
from butlers.skills.reader import named_folder, read_skill, read_skill_md
from butlers.skills.requirements import with_wanted_variables
from butlers.skills.skill import PackMcpServer, SkillSpec
from butlers.skills.tree import IGNORED_NAMES, EntryKind, Tree, TreeEntry, resolve_inside, walk

ENV_EXAMPLE = ".env.example"
_MAX_LISTED = 50  # names in one message
# Only the first bytes of a file are searched.
_MAX_TEXT = 1024 * 1024
# CPU time of one check. Enough for the largest skill: every rule is linear in the size of its files.
MAX_CPU_S = 20.0
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
# A first argument with one of these is the program that an interpreter runs.
_PROGRAM_SUFFIXES = frozenset((".py", ".js", ".mjs", ".cjs", ".ts", ".sh", ".rb"))
_MARKDOWN = (".md", ".mdx", ".markdown")
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


def check(folder: Path, *, cpu_s: float = MAX_CPU_S) -> Checked:
    """Read the skill and apply every rule. A skill that takes longer than ``cpu_s`` gets an error."""
    deadline = time.thread_time() + cpu_s
    folder = named_folder(folder)
    reading = read_skill(folder)
    findings = Findings(folder)
    _check_folder_name(folder, findings)
    try:
        tree = walk(folder, skip=IGNORED_NAMES)  # as it is copied
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
            _check_contents(reading.skill, tree, findings, deadline)
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
        if entry.kind is EntryKind.OTHER:
            findings.add(
                "tree-special-file",
                f"{quoted(entry.path)} is not a regular file",
                file=tree.root / entry.path,
            )
        elif entry.kind is EntryKind.LINK:
            _check_link(entry, tree, findings)
        if names.inner_path(entry.path) is None:
            findings.add(
                "tree-path", f"{quoted(entry.path)} is not a portable name", file=tree.root
            )


def _check_link(entry: TreeEntry, tree: Tree, findings: Findings) -> None:
    path = tree.root / entry.path
    real = resolve_inside(path, tree.root)
    if real is not None and not real.is_dir():
        return
    if real is not None:
        code, hint = (
            "tree-link-folder",
            "copy the folder instead: only links to files are installed",
        )
    else:
        code = "tree-link-leaves" if path.exists() else "tree-link-broken"
        hint = "copy the file into the skill instead"
    message = f"{quoted(entry.path)} points to {quoted(entry.target or '')}"
    findings.add(code, message, file=path, hint=hint)


def _check_pack(reading: Reading, skill: SkillSpec, tree: Tree, findings: Findings) -> None:
    file = tree.root / ("manifest.json" if skill.has_manifest else "SKILL.md")
    for path in skill.context:
        if findings.is_full("manifest-context-missing"):
            break
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
        if findings.is_full("manifest-script-missing"):
            break
        _check_script(path, reading, tree, file, findings)
    for server in skill.mcp_servers:
        program = _program_of(server)
        if program is not None and not (tree.root / program).is_file():
            findings.add(
                "manifest-server-missing",
                f"the server {quoted(server.name)} runs {quoted(program)}, which does not exist",
                file=file,
                at=reading.where("mcpServers"),
                entry="mcpServers",
            )
    if skill.env_vars and tree.get(ENV_EXAMPLE) is None:
        listed = ", ".join(skill.env_vars[:_MAX_LISTED])
        findings.add(
            "manifest-env-example",
            f"{ENV_EXAMPLE} must list the variables to set: {listed}",
            file=file,
            at=reading.where("envVars"),
            entry="envVars",
        )


def _program_of(server: PackMcpServer) -> str | None:
    """Return the file of the skill that a local server runs; None for an installed program or a module."""
    command, first = server.command or "", server.args[0] if server.args else ""
    if "/" in command:
        return None if command.startswith("/") else command
    named = PurePosixPath(first)
    return first if named.suffix in _PROGRAM_SUFFIXES and not named.is_absolute() else None


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


def _check_contents(
    skill: SkillSpec, tree: Tree, findings: Findings, deadline: float = float("inf")
) -> None:
    """Search the text of every file, until no more warning is kept."""
    declared, used = {*with_wanted_variables(skill).env_vars}, {*skill.context, *skill.scripts}
    for entry in tree.files():
        if findings.is_full("skill-hidden-unicode"):  # all of these are warnings
            return
        if time.thread_time() > deadline:
            findings.add("check-too-long", "the rest of the skill was not checked")
            return
        text = _text_of(tree.root, entry, used)
        if text is None:
            continue
        for code, message, name, place in _file_problems(entry.path, text, tree, declared):
            file, hint = tree.root / entry.path, _HINTS.get(code)
            findings.add(code, message, file=file, at=place, entry=name, hint=hint)
            if findings.is_full(code):
                return


_HINTS = {
    "content-undeclared-env": "declare it in envVars or by --env: a script gets declared variables only",
    "content-html-comment": "a model reads it; write it as text, or delete it",
    "content-reference-missing": "add the file, or correct the path",
}


def _file_problems(
    path: str, text: SkillText, tree: Tree, declared: set[str]
) -> Iterator[tuple[str, str, str | None, Place]]:
    """Yield code, message, entry and place of each problem in one file."""
    for code, message, place in _suspicions(text):
        yield code, message, None, place
    for name, place in read_variables(path, text):
        if name not in declared:
            yield "content-undeclared-env", f"{name} is read but not declared", name, place
    if not path.lower().endswith(_MARKDOWN):
        return
    for words, place in html_comments(text):
        yield "content-html-comment", f"the comment {quoted(words)}", None, place
    if path.lower() == "skill.md":
        for missing, place in missing_files(text, tree.root, tree.paths()):
            yield "content-reference-missing", f"{missing} does not exist", None, place


def _suspicions(text: SkillText) -> Iterator[tuple[str, str, Place]]:
    for what, place in hidden_characters(text):
        yield "skill-hidden-unicode", f"an invisible {what}", place
    for what, place in piped_shells(text):
        yield "content-pipe-to-shell", quoted(what), place


def _check_escapes(reading: Reading, skill: SkillSpec, tree: Tree, findings: Findings) -> None:
    """Search the parsed values too: JSON and YAML can write any character as an escape."""
    main = "manifest.json" if skill.has_manifest else "SKILL.md"
    _check_values(reading, tree, main, findings)
    if skill.has_manifest and skill.has_skill_md:  # other clients show its fields to a model
        from_text = read_skill_md(tree.root)
        if from_text is not None:
            _check_values(from_text, tree, "SKILL.md", findings)


def _spelled_file(tree: Tree, proper: str) -> Path:
    """Return the file with the spelling that the folder has."""
    spelled = (entry.path for entry in tree.entries if entry.path.lower() == proper.lower())
    return tree.root / next(spelled, proper)


def _check_values(reading: Reading, tree: Tree, proper: str, findings: Findings) -> None:
    if reading.skill is None:
        return
    written: bytes | None = None
    for key, value in _keys_and_texts(reading.skill):
        text = SkillText.of(value)
        for code, message, _place in _suspicions(text):
            if findings.is_full(code):
                return
            if written is None:
                written = _read_bytes(str(_spelled_file(tree, proper))) or b""
            if text.data in written:  # then it is already reported at its place
                break
            file, at = _spelled_file(tree, proper), reading.where(key)
            findings.add(code, f"{message}, as an escape", file=file, at=at, entry=key)


def _keys_and_texts(skill: SkillSpec) -> Iterator[tuple[str, str]]:
    """Yield every text of a skill with its manifest key. The body has no escapes."""
    for name in _FIELDS:
        value = getattr(skill, name)
        if value:
            key = _MANIFEST_KEYS.get(name, name)
            yield from ((key, text) for text in _texts(value))


_FIELDS = tuple(one.name for one in fields(SkillSpec) if one.name != "body")


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


def _text_of(root: Path, entry: TreeEntry, used: set[str]) -> SkillText | None:
    """Return the file's text, or None for a file that is neither read as text nor run."""
    name = entry.path.rpartition("/")[2].lower()
    dot = name.rfind(".")
    suffix = name[dot:] if dot > 0 else ""
    known = suffix in _TEXT_SUFFIXES or entry.path in used
    maybe_binary = not known and names.script_language(name) is None
    if maybe_binary and not (entry.executable or entry.path.startswith(_USED_FOLDERS)):
        return None
    data = _read_bytes(f"{root}/{entry.path}")
    if data is None:
        return None
    if maybe_binary and b"\0" in data[:_BINARY] and not data.startswith(b"#!"):
        return None
    return SkillText(data)


def _read_bytes(path: str) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as stream:
            return stream.read(_MAX_TEXT)
    except OSError:
        return None  # hashing and copying reject an unreadable file
