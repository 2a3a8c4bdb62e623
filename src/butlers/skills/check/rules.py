"""``check``: everything that is wrong with a skill's folder, in one go, each with its code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path, PurePosixPath

from butlers.config.locate import Place
from butlers.domain.diagnostic import Diagnostic, Severity
from butlers.domain.errors import SkillError, SkillTooLarge
from butlers.skills import names
from butlers.skills.check import content
from butlers.skills.findings import MAX_FINDINGS, Findings, printable, quoted
from butlers.skills.formats.base import Reading
from butlers.skills.reader import read_skill, read_skill_md
from butlers.skills.skill import Skill
from butlers.skills.texts import texts_of
from butlers.skills.tree import Entry, Kind, Tree, resolve_inside, walk

ENV_EXAMPLE = ".env.example"
# What comes after that much of a file is not looked at.
_MAX_TEXT = 1024 * 1024
_TEXTS = frozenset(
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
# What is below them is read or run, whatever it is called.
_USED = ("context/", "references/", "scripts/")
_BINARY = 8192  # a zero byte among the first so many


@dataclass(frozen=True, slots=True)
class Checked:
    """One folder's outcome. Whatever has an error is neither registered nor written."""

    folder: Path
    reading: Reading
    diagnostics: tuple[Diagnostic, ...]

    @property
    def skill(self) -> Skill | None:
        return self.reading.skill

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        return tuple(found for found in self.diagnostics if found.severity is Severity.ERROR)

    def errors_in(self, folder: Path) -> tuple[Diagnostic, ...]:
        """The errors of this copy, told as if they were in the folder that it was copied from."""
        here, there = (Path(printable(str(path))) for path in (self.folder, folder))
        return tuple(
            replace(found, file=there / found.file.relative_to(here)) for found in self.errors
        )

    @property
    def valid(self) -> bool:
        return self.skill is not None and not self.errors


def check(folder: Path, *, shared: Path | None = None) -> Checked:
    """Read the skill and apply every rule. Links may lead into the folder or to ``shared``."""
    reading = read_skill(folder, shared=shared)
    findings = Findings(folder)
    _check_folder_name(folder, findings)
    try:
        tree = walk(folder)
    except SkillTooLarge as error:
        code = "tree-too-large" if " MB " in error.message else "tree-too-many"
        findings.add(code, error.message, hint=error.hint)
    except SkillError as error:
        if reading.skill is not None:  # else reading has said so
            findings.add("skill-unreadable", error.message, hint=error.hint)
    else:
        _check_tree(tree, shared, findings)
        if reading.skill is not None:
            _check_pack(reading, reading.skill, tree, findings)
            _check_contents(reading.skill, tree, findings)
            _check_values(reading, reading.skill, tree, findings)
    told = set(reading.diagnostics)
    rest = tuple(found for found in findings.diagnostics if found not in told)
    return Checked(folder, reading, (*reading.diagnostics, *rest))


def _check_folder_name(folder: Path, findings: Findings) -> None:
    name, _at, version = folder.name.partition("@")
    if names.is_version(version):  # the registry's own folders
        return
    if not names.is_kebab(folder.name):
        near = names.slug(name)
        findings.add(
            "folder-name",
            f"the folder {quoted(folder.name)} is not kebab-case",
            hint=f"rename it to {near}" if near else "lower-case letters, digits, single hyphens",
        )


def _check_tree(tree: Tree, shared: Path | None, findings: Findings) -> None:
    roots = (tree.root,) if shared is None else (tree.root, shared)
    for entry in tree.entries:
        path = tree.root / entry.path
        if entry.kind is Kind.OTHER:
            findings.add("tree-special-file", f"{quoted(entry.path)} is no file", file=path)
        elif entry.kind is Kind.LINK:
            _check_link(path, entry, roots, findings)
        if names.inner_path(entry.path) is None:
            findings.add("tree-path", f"{quoted(entry.path)} is not a usable name", file=tree.root)


def _check_link(path: Path, entry: Entry, roots: tuple[Path, ...], findings: Findings) -> None:
    if resolve_inside(path, *roots) is not None:
        return
    broken = not path.exists()
    findings.add(
        "tree-link-broken" if broken else "tree-link-leaves",
        f"{quoted(entry.path)} points to {quoted(entry.target or '')}",
        file=path,
        hint="copy the file into the skill instead",
    )


def _check_pack(reading: Reading, skill: Skill, tree: Tree, findings: Findings) -> None:
    file = tree.root / ("manifest.json" if skill.has_manifest else "SKILL.md")
    for path in skill.context:
        if not (tree.root / path).is_file():
            at = reading.where("context", path)
            findings.add(
                "manifest-context-missing", f"there is no {path}", file=file, at=at, entry="context"
            )
    for path in skill.scripts:
        _check_script(path, reading, tree, file, findings)
    if skill.env_vars and tree.get(ENV_EXAMPLE) is None:
        findings.add(
            "manifest-env-example",
            f"{ENV_EXAMPLE} must say which variables to set: {', '.join(skill.env_vars)}",
            file=file,
            at=reading.where("envVars"),
            entry="envVars",
        )


def _check_script(path: str, reading: Reading, tree: Tree, file: Path, findings: Findings) -> None:
    script = tree.root / path
    if not script.is_file():
        code, message, hint = "manifest-script-missing", f"there is no {path}", None
    elif not script.stat().st_mode & 0o111:
        code, message = "manifest-script-not-executable", f"{path} is not executable"
        hint = f"chmod +x {path}"
    else:
        return
    at = reading.where("scripts", path)
    findings.add(code, message, file=file, at=at, entry="scripts", hint=hint)


def _check_contents(skill: Skill, tree: Tree, findings: Findings) -> None:
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
                    f"{name} is read, and not declared",
                    file=file,
                    at=place,
                    entry=name,
                    hint="declare it in envVars: a script gets nothing else",
                )


def _suspicions(text: str) -> Iterator[tuple[str, str, Place]]:
    for what, place in content.hidden_characters(text):
        yield "skill-hidden-unicode", f"an invisible {what}", place
    for what, place in content.piped_shells(text):
        yield "content-pipe-to-shell", quoted(what), place


def _check_values(reading: Reading, skill: Skill, tree: Tree, findings: Findings) -> None:
    """What the file's own text does not show: JSON and YAML can write every character as an escape."""
    _check_said(
        reading, _main_file(tree, "manifest.json" if skill.has_manifest else "SKILL.md"), findings
    )
    if (
        skill.has_manifest and skill.has_skill_md
    ):  # whose fields are what other clients show a model
        told = read_skill_md(tree.root)
        if told is not None:
            _check_said(told, _main_file(tree, "SKILL.md"), findings)


def _main_file(tree: Tree, proper: str) -> Path:
    """As it is spelled there."""
    spelled = (entry.path for entry in tree.entries if entry.path.lower() == proper.lower())
    return tree.root / next(spelled, proper)


def _check_said(reading: Reading, file: Path, findings: Findings) -> None:
    if reading.skill is None:
        return
    written = _read_text(file) or ""
    escaped = (
        (code, message, key)
        for key, text in texts_of(reading.skill)
        for code, message, _place in _suspicions(text)
        if text not in written  # else it was found there, where it stands
    )
    for code, message, key in islice(escaped, MAX_FINDINGS):
        findings.add(code, f"{message}, as an escape", file=file, at=reading.where(key), entry=key)


def _text_of(path: Path, entry: Entry, skill: Skill) -> str | None:
    """None for what nobody reads as a text or runs."""
    suffix = PurePosixPath(entry.path).suffix.lower()
    known = suffix in _TEXTS or content.language(entry.path) is not None
    if known or entry.path in skill.context:
        return _read_text(path)
    used = entry.executable or entry.path.startswith(_USED) or entry.path in skill.scripts
    text = _read_text(path) if used else None
    binary = text is not None and "\0" in text[:_BINARY] and not text.startswith("#!")
    return None if binary else text


def _read_text(path: Path) -> str | None:
    try:
        with open(path, "rb") as stream:
            return stream.read(_MAX_TEXT).decode("utf-8", "replace")
    except OSError:
        return None  # the digest and the copy refuse what can not be read
