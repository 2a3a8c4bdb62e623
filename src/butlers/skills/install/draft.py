"""Skills that a session makes: write a draft to a folder and check it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from butlers.domain.errors import InvalidSkill, SkillTooLarge
from butlers.skills.check.rules import ENV_EXAMPLE, check
from butlers.skills.names import inner_path, is_id
from butlers.skills.registry import packs
from butlers.skills.tree import translate_os_errors

MAX_FILES = 50
MAX_CHARACTERS = 256 * 1024
INSTRUCTIONS = "context/instructions.md"
_TEMPORARY = ".making-"


@dataclass(frozen=True, slots=True)
class SkillDraft:
    """``files`` maps paths to text. Files below context/ belong to the instructions, in this order."""

    id: str
    description: str
    instructions: str
    version: str = "1.0.0"
    scripts: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    env_vars: tuple[str, ...] = ()

    def contents(self, owner: str) -> dict[str, str]:
        """Return the text of every file of the skill, by path."""
        scripts = {
            f"scripts/{name.removeprefix('scripts/')}": text for name, text in self.scripts.items()
        }
        context = [
            path for path in self.files if path.startswith("context/") and path != INSTRUCTIONS
        ]
        manifest: dict[str, Any] = {
            "id": self.id,
            "name": self.id,
            "version": self.version,
            "description": self.description,
            "owner": owner,
            "context": [INSTRUCTIONS, *context],
        }
        if scripts:
            manifest["scripts"] = list(scripts)
        examples = {}
        if self.env_vars:
            manifest["envVars"] = list(self.env_vars)
            examples[ENV_EXAMPLE] = "".join(f"{name}=\n" for name in self.env_vars)
        return {
            **examples,
            **self.files,
            **scripts,
            INSTRUCTIONS: self.instructions,
            "manifest.json": json.dumps(manifest, indent=2, ensure_ascii=False) + "\n",
        }


@contextmanager
def draft_folder(draft: SkillDraft, owner: str, custom: Path) -> Iterator[Path]:
    """Write the draft below ``custom`` and yield its folder, removed at the end unless moved.

    Raise InvalidSkill with every problem of the draft.
    """
    contents = draft.contents(owner)
    _check_limits(contents)
    around = custom / f"{_TEMPORARY}{secrets.token_hex(6)}"
    folder = around / (draft.id if is_id(draft.id) else "new-skill")
    try:
        with translate_os_errors(folder):
            _write(folder, contents)
        checked = check(folder)
        if not checked.valid:
            raise InvalidSkill(
                f"the skill {draft.id[:64]!r} is not valid:",
                diagnostics=checked.errors_in(Path(folder.name)),
                hint="fix all of these and create it again",
            )
        yield folder
    finally:
        packs.remove(around)


def is_temporary(name: str) -> bool:
    """Return True for the name of a folder that is still being written."""
    return name.startswith(".")


def read_manifest(folder: Path) -> dict[str, Any]:
    with translate_os_errors(folder):
        found: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
    return found


def _check_limits(contents: Mapping[str, str]) -> None:
    wrong = [
        path
        for path in contents
        if inner_path(path) != path or (path.startswith(".") and path != ENV_EXAMPLE)
    ]
    if wrong:
        named = ", ".join(repr(path[:80]) for path in wrong)
        raise InvalidSkill(
            f"invalid paths: {named}", hint="use relative paths, such as references/a.md"
        )
    size = sum(map(len, contents.values()))
    if len(contents) > MAX_FILES or size > MAX_CHARACTERS:
        raise SkillTooLarge(
            f"a new skill has at most {MAX_FILES} files and {MAX_CHARACTERS:,} characters"
        )


def _write(folder: Path, contents: Mapping[str, str]) -> None:
    for path, text in contents.items():
        file = folder / PurePosixPath(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode("utf-8", "replace"))
        file.chmod(0o755 if path.startswith("scripts/") else 0o644)
