"""Errors of the file system, said as ours: with the path, and with what a person can do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from butlers.domain.errors import SkillError


@contextmanager
def telling(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else path
        raise SkillError(
            f"{where}: {error.strerror or error}",
            hint="check free space, and that you may read and write there",
        ) from error
