"""``check --fix``: repairs that change how a skill is written, not its meaning."""

from __future__ import annotations

from pathlib import Path

from butlers.config.files import replace_file
from butlers.domain.errors import InvalidSkill
from butlers.skills.check.rules import ENV_EXAMPLE, Checked, check
from butlers.skills.findings import RULES
from butlers.skills.formats.skill_md import FORMAT, with_valid_front_matter
from butlers.skills.reader import named_folder
from butlers.skills.skill import SkillSpec
from butlers.skills.tree import translate_os_errors

# Fixed in other files than SKILL.md.
_PACK_CODES = frozenset({"manifest-script-not-executable", "manifest-env-example"})


def fix(folder: Path) -> tuple[tuple[str, ...], Checked]:
    """Apply every safe fix. Return the codes that are fixed, and a new check."""
    folder = named_folder(folder)
    before = check(folder)
    codes = {found.code for found in before.diagnostics if RULES[found.code].fixable}
    if before.skill is None or "tree-link-leaves" in before.reading.codes():
        return (), before
    with translate_os_errors(folder):
        _apply(folder, before.skill, codes)
    after = check(folder)
    left = {found.code for found in after.diagnostics}
    return tuple(sorted(codes - left)), after


def _apply(folder: Path, skill: SkillSpec, codes: set[str]) -> None:
    if codes - _PACK_CODES:
        _rewrite_skill_md(folder)
    if "manifest-script-not-executable" in codes:
        _make_executable(folder, skill.scripts)
    if "manifest-env-example" in codes:
        lines = "".join(f"{name}=\n" for name in skill.env_vars)
        replace_file(folder / ENV_EXAMPLE, lines.encode(), 0o644)


def _rewrite_skill_md(folder: Path) -> None:
    """Write SKILL.md with its proper name and valid front matter."""
    written = next(
        (path for path in folder.iterdir() if path.name.lower() == "skill.md" and path.is_file()),
        None,
    )
    if written is None:
        return
    if written.is_symlink():
        raise InvalidSkill(f"{written} is a link", hint="check the folder that it points to")
    proper = folder / FORMAT.file_names[0]
    content = with_valid_front_matter(written, written.read_bytes())
    replace_file(proper, content, written.stat().st_mode & 0o777)
    if written != proper:
        written.unlink()


def _make_executable(folder: Path, scripts: tuple[str, ...]) -> None:
    for path in scripts:
        script = folder / path
        if script.is_file() and not script.is_symlink():
            script.chmod(script.stat().st_mode | 0o111)
