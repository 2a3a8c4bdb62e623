"""The folders, environment and sandbox of one run of a script or server of a skill."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from butlers.config.files import make_private_folder
from butlers.domain.errors import SkillPathRefused
from butlers.domain.session import Access
from butlers.domain.trace import traceparent_environment
from butlers.process.leftovers import temporary_folder
from butlers.process.sandbox import (
    Mount,
    ResourceLimits,
    Sandbox,
    program_mounts,
    python_mounts,
)
from butlers.skills.registry import packs
from butlers.skills.skill import Pack
from butlers.skills.tree import translate_os_errors

SCRATCH = "run/scripts"  # in our home
PREFIX = "butlers-script-"
OUTPUT = "output"  # the folder below the working folder that a script may write
# Variables that the runner sets for scripts.
ACCESS, OUTPUT_FOLDER = "BUTLERS_ACCESS", "BUTLERS_OUTPUT"
_PACKS, _HOME, _TMP = Path("/skill"), Path("/tmp/home"), Path("/tmp/tmp")
_MAX_PROCESSES = 128
_MAX_MEMORY = 2 << 30
_MAX_FILE = 256 << 20


@dataclass(frozen=True, slots=True)
class VerifiedCopy:
    """A copy of a skill for one run, and its hash."""

    path: Path
    digest: str


@dataclass(frozen=True, slots=True)
class ScriptSpace:
    """The folders of one run, as the script sees them. ``walled``: it runs in a sandbox."""

    scratch: Path
    copy: VerifiedCopy
    work: Path
    walled: bool
    access: Access = Access.SEALED

    @property
    def pack(self) -> Path:
        return _PACKS / self.copy.path.name if self.walled else self.copy.path

    @property
    def home(self) -> Path:
        return _HOME if self._own_tmp else self.scratch / "home"

    @property
    def tmp(self) -> Path:
        return _TMP if self._own_tmp else self.scratch / "tmp"

    @property
    def _own_tmp(self) -> bool:
        """True if its folders are in the sandbox's own /tmp, which is limited in size."""
        return self.walled and self.access is not Access.FULL

    def make_folders(self) -> None:
        """Create HOME and TMPDIR where the sandbox does not."""
        if not self._own_tmp:
            for folder in (self.home, self.tmp):
                folder.mkdir()

    def environment(self, search_path: str) -> dict[str, str]:
        """Return the variables that every script and server of a skill gets."""
        return {
            "PATH": search_path,
            "LANG": "C.UTF-8",
            "HOME": str(self.home),
            "TMPDIR": str(self.tmp),
            ACCESS: str(self.access),
            **traceparent_environment(),
        }

    def sandbox(
        self,
        program: str,
        *,
        hidden: tuple[Path, ...],
        ports: tuple[int, ...] | None,
        cpu_s: int | None = None,
        writable: tuple[Path, ...] = (),
    ) -> Sandbox:
        """Return the sandbox. Without ``full`` access, only the folders of ``writable`` can be written."""
        full = self.access is Access.FULL
        own = (Mount(self.scratch / name, writable=True) for name in ("home", "tmp"))
        return Sandbox(
            mounts=(
                *python_mounts(),
                *program_mounts(Path(program)),
                Mount(self.copy.path, self.pack),
                Mount(self.work, writable=full),
                *(Mount(folder, writable=True) for folder in writable),
                *(own if full else ()),
            ),
            folders=() if full else (str(self.home), str(self.tmp)),
            hidden=hidden,
            ports=None if full else ports,
            limits=ResourceLimits(_MAX_PROCESSES, _MAX_MEMORY, cpu_s, _MAX_FILE),
            whole_machine=full,
        )


@contextmanager
def scratch_folder(home: Path) -> Iterator[Path]:
    parent = home / SCRATCH
    with translate_os_errors(parent):
        make_private_folder(parent)
        with temporary_folder(PREFIX, parent) as scratch:
            yield scratch


def verified_copy(pack: Pack, scratch: Path) -> VerifiedCopy:
    copy = scratch / "pack" / pack.folder.name
    copy.mkdir(parents=True)
    digest = packs.copy_verified(pack.folder, copy, pack.digest, shared=pack.shared)
    return VerifiedCopy(copy, digest)


def output_folder(work: Path) -> Path:
    """Create the output folder of a working folder. Raise SkillPathRefused if it is anything else."""
    folder = work / OUTPUT
    with translate_os_errors(folder):
        try:
            os.mkdir(folder)
        except FileExistsError:
            if folder.is_symlink() or not folder.is_dir():
                raise SkillPathRefused(
                    f"{folder} is not a folder", hint="remove it: scripts write into this folder"
                ) from None
    return folder
