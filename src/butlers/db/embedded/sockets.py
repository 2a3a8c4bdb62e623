"""Where the server's socket may be: near the data, or in a short private folder."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from butlers.db.embedded.postmaster import SOCKET_NAME
from butlers.domain.errors import DatabaseUnavailable

# The kernel takes 107 bytes on Linux and 103 on macOS.
_LONGEST = 100


def choose_socket_dir(root: Path, runtime_dir: Path | None, temp_dir: Path) -> Path:
    """The same folder for every process of this home and user."""
    near = root / "run"
    if _fits(near):
        return near
    name = f"butlers-{os.geteuid()}-{hashlib.sha256(bytes(root)).hexdigest()[:12]}"
    if runtime_dir is not None and _is_ours(runtime_dir) and _fits(runtime_dir / name):
        return runtime_dir / name
    return temp_dir / name


def make_private(folder: Path, also_allowed: int | None = None) -> None:
    """Make the folder, or refuse it when somebody else made it: the temp folder is everybody's."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        owners = {os.geteuid(), also_allowed}
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in owners:
            raise DatabaseUnavailable(
                f"{folder} belongs to somebody else, so the database's socket can not go there",
                hint=f"remove {folder}, or move Butlers' home to a shorter path",
            ) from None
    folder.chmod(0o700)


def _fits(folder: Path) -> bool:
    # A comma separates hosts in a connection URL, whatever the quoting.
    return len(bytes(folder / SOCKET_NAME)) <= _LONGEST and b"," not in bytes(folder)


def _is_ours(folder: Path) -> bool:
    try:
        found = folder.stat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
