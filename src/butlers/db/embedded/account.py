"""As whom the server runs: PostgreSQL refuses root, and root's own files must stay reachable."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from butlers.domain.errors import DatabaseUnavailable

_USUAL_UID = 1000


@dataclass(frozen=True, slots=True)
class Account:
    """A way to start a program: a prefix that maps our user, or another user, or neither."""

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
        """Run to the end, out of reach of the terminal's Ctrl-C; only ``keep`` is inherited."""
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
        """Give folders and their content to the account, where root left or found them."""
        if os.geteuid() != 0:
            return
        for top in tops:
            self._own(top)

    def _own(self, path: Path) -> None:
        """Children before their folder: a folder with the right owner was finished."""
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
    """The first account that may run the program and write the folder, which becomes its own."""
    tried = []
    for account in _candidates(folder.parent, search_path):
        account.adopt(*folder.iterdir(), folder)
        if account.reaches(program, folder, search_path):
            return account
        tried.append(account.name)
    raise DatabaseUnavailable(
        f"PostgreSQL may not run as root, and no other account reaches both {program} and "
        f"{folder} (tried: {', '.join(tried)})",
        hint="run Butlers as an ordinary user, move its home to a folder others may enter, "
        "or set DATABASE_URL",
    )


def _candidates(home: Path, search_path: str) -> Iterator[Account]:
    if os.geteuid() != 0:
        yield from _candidates_of_a_user(search_path)
        return
    owner = home.stat()
    if owner.st_uid != 0 and _is_known(owner.st_uid):
        # Under sudo in a user's home: that user must be able to go on without root afterwards.
        yield Account("the owner of the home", uid=owner.st_uid, gid=owner.st_gid)
    yield from _user_namespace(search_path)
    nobody = _nobody()
    if nobody is not None:
        yield Account("nobody", uid=nobody.pw_uid, gid=nobody.pw_gid)


def _candidates_of_a_user(search_path: str) -> Iterator[Account]:
    if not _is_known(os.geteuid()):
        # initdb wants a name for its user; a container started with a bare number has none.
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
