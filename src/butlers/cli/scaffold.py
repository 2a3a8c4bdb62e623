"""Writing new folders all or nothing, and names that will do."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Template

from butlers.domain.errors import ButlersError


class FolderExists(ButlersError):
    """There is already something of that name."""

    code = "folder_exists"


class NotWritable(ButlersError):
    """The folder can not be written."""

    code = "not_writable"


def class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.replace("-", "_").split("_"))


def fill(texts: Mapping[str, str], **values: object) -> dict[str, str]:
    return {path: Template(text).substitute(values) for path, text in texts.items()}


def refuse_existing(folder: Path, hint: str) -> None:
    if os.path.lexists(folder):  # a dangling link too
        raise FolderExists(f"{folder} is already there; nothing was changed", hint=hint)


def make_folder(
    folder: Path,
    files: Mapping[str, str],
    *,
    empty: tuple[str, ...] = (),
    check: Callable[[Path], object] = lambda _: None,
) -> None:
    """Build it beside its place, check it, then move it there in one step."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = folder.parent / f".{folder.name}.{secrets.token_hex(4)}"
        try:
            _write(draft, files, empty)
            check(draft)
            _move(draft, folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise NotWritable(
            f"{folder} can not be made: {error.strerror or error}",
            hint="choose a folder that you may write to",
        ) from error


def _write(draft: Path, files: Mapping[str, str], empty: tuple[str, ...]) -> None:
    draft.mkdir()
    for name in empty:
        (draft / name).mkdir()
    for name, text in files.items():
        path = draft / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _move(draft: Path, folder: Path) -> None:
    """mkdir is what claims the name: of two at once, one is told that it is taken."""
    try:
        folder.mkdir()
    except FileExistsError:
        raise FolderExists(f"{folder} is already there; nothing was changed") from None
    try:
        draft.rename(folder)  # over the empty folder, in one step
    except OSError:
        folder.rmdir()
        raise
