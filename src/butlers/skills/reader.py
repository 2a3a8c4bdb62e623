"""A skill's folder becomes a Skill, by whichever forms it holds."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from butlers.skills.findings import Findings
from butlers.skills.formats import manifest, skill_md
from butlers.skills.formats.base import Reading, SkillFormat, Source
from butlers.skills.skill import Skill
from butlers.skills.tree import resolve_inside

MAX_FILE = 1024 * 1024
REFLEX_FILE = "reflex.toml"


def read_skill(folder: Path, *, shared: Path | None = None) -> Reading:
    """Never raises for what is in the folder. A link may lead into the folder or to ``shared``.

    Where both forms are there, the manifest says what the skill is, and SKILL.md its instructions.
    """
    findings = Findings(folder)
    try:
        present = os.listdir(folder)
    except OSError as error:
        findings.add("skill-unreadable", error.strerror or "can not be read")
        return Reading(None, tuple(findings.diagnostics))
    roots = (folder,) if shared is None else (folder, shared)
    pack = _read(manifest.FORMAT, folder, present, roots, findings)
    text = _read(skill_md.FORMAT, folder, present, roots, findings)
    if pack is None and text is None:
        if not findings.diagnostics:
            findings.add(
                "skill-missing",
                "there is no SKILL.md and no manifest.json",
                hint="a skill is a folder with a SKILL.md in it",
            )
        return Reading(None, tuple(findings.diagnostics))
    skill = _joined(pack, text, has_reflex=REFLEX_FILE in present)
    readings = [reading for reading in (pack, text) if reading is not None]
    found = [*findings.diagnostics]
    for reading in readings:
        found += reading.diagnostics
    traits = text.traits if text else frozenset()
    return Reading(skill, tuple(found), traits, readings[0].where)


def read_skill_md(folder: Path) -> Reading | None:
    """What its SKILL.md alone says, whatever a manifest may; None without one that can be read."""
    findings = Findings(folder)
    return _read(skill_md.FORMAT, folder, ["SKILL.md"], (folder,), findings)


def _joined(pack: Reading | None, text: Reading | None, *, has_reflex: bool) -> Skill | None:
    described = pack.skill if pack else None
    told = text.skill if text else None
    skill = described or told
    if described is not None and told is not None:
        body = "" if _is_listing(told, described) else told.body
        skill = described.evolve(body=body, has_skill_md=True)
    return skill.evolve(has_reflex=True) if skill is not None and has_reflex else skill


def _is_listing(told: Skill, described: Skill) -> bool:
    """Whether SKILL.md was generated for a pack that has context files only."""
    return not told.body and told.context == described.context


def _read(
    form: SkillFormat, folder: Path, present: list[str], roots: tuple[Path, ...], findings: Findings
) -> Reading | None:
    """What this form's file says; None without such a file, or when it can not be read."""
    proper = form.file_names[0]
    spelled = [name for name in form.file_names if name in present]
    spelled += sorted(name for name in present if name.lower() == proper.lower())
    if not spelled:
        return None
    file = folder / spelled[0]
    if spelled[0] != proper:
        findings.add(
            "skill-file-name",
            f"the file is called {spelled[0]}",
            file=file,
            hint=f"rename it to {proper}: other clients look for that name only",
        )
    content = _bytes(file, roots, findings)
    return None if content is None else form.read(Source(file, content))


def _bytes(file: Path, roots: tuple[Path, ...], findings: Findings) -> bytes | None:
    try:
        mode = os.lstat(file).st_mode
        if stat.S_ISLNK(mode):
            if resolve_inside(file, *roots) is None:
                findings.add("tree-link-leaves", "a link out of the skill is not read", file=file)
                return None
            mode = os.stat(file).st_mode
        if not stat.S_ISREG(mode):  # reading a pipe would wait for ever
            findings.add("skill-unreadable", "not a file", file=file)
            return None
        with open(file, "rb", buffering=0) as stream:
            content = stream.read(MAX_FILE + 1)
    except OSError as error:
        findings.add("skill-unreadable", error.strerror or "can not be read", file=file)
        return None
    if len(content) > MAX_FILE:
        findings.add("skill-too-large", f"more than {MAX_FILE // 1024} KB", file=file)
        return None
    return content
