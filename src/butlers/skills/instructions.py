"""Reading a skill: its instructions in their order, and single files of it, within bounds."""

from __future__ import annotations

from pathlib import Path

from butlers.domain.errors import SkillNotFound, SkillPathRefused
from butlers.skills.described import describe_script
from butlers.skills.names import inner_path, script_language
from butlers.skills.scripts.runner import Pack
from butlers.skills.tree import resolve_inside, translate_os_errors, walk

LONGEST = 100_000  # characters of one file
_LISTED = 200  # files that are named


def instructions(pack: Pack) -> str:
    """What SKILL.md says, then the context files in the order of the manifest."""
    parts = [
        pack.skill.instructions,
        *(read_text(pack, path).strip() for path in pack.skill.context),
    ]
    return "\n\n".join(part for part in parts if part)


def read_text(pack: Pack, path: str) -> str:
    """One file of the skill as text; what no longer fits is cut, and said to be."""
    roots = (pack.folder, *((pack.shared,) if pack.shared else ()))
    if inner_path(path) is None:
        raise SkillPathRefused(f"{path[:80]!r} is not a path inside {pack.skill.label}")
    file = resolve_inside(pack.folder / path, *roots)
    if file is None or not file.is_file():
        raise SkillNotFound(
            f"{pack.skill.label} has no file {path!r}", hint=f"there are: {', '.join(files(pack))}"
        )
    with translate_os_errors(file), file.open("rb") as stream:
        text = stream.read(4 * LONGEST + 4).decode("utf-8", "replace")
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n[cut at {LONGEST:,} characters]"


def files(pack: Pack) -> list[str]:
    """Those that can be asked for: a name that is no text could not even be told."""
    found = (entry.path for entry in walk(pack.folder).files())
    return [path for path in found if inner_path(path) == path][:_LISTED]


def scripts(pack: Pack) -> dict[str, str]:
    """What each script says it does. Where a manifest lists some, there are no others."""
    listed = pack.skill.scripts or tuple(path for path in files(pack) if script_language(path))
    return {path: describe_script(_inside(pack.folder, path)) for path in listed}


def _inside(folder: Path, path: str) -> Path:
    return resolve_inside(folder / path, folder) or folder / "nothing"
