"""The data folder of the embedded server, created atomically."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
from pathlib import Path

from butlers.config.files import sync_folder, write_once
from butlers.db.embedded.programs import Account, major_version
from butlers.domain.errors import ProvisioningError

_BUILTIN_LOCALE_SINCE = 17


class Cluster:
    """Files under ``<home>/postgres``."""

    def __init__(self, root: Path, binaries: Path) -> None:
        self.root = root
        self.data = root / "data"
        self.log = root / "server.log"
        self.password_file = root / "password"
        self._binaries = binaries

    def check(self) -> bool:
        """Return whether a database exists. Raise if it has another version, or the folder other files."""
        try:
            version = (self.data / "PG_VERSION").read_text().strip()
        except FileNotFoundError:
            self._refuse_foreign_content()
            return False
        installed = major_version(self._binaries)
        if version != str(installed):
            raise ProvisioningError(
                f"the database in {self.data} was created by PostgreSQL {version}, "
                f"but the programs in {self._binaries} are PostgreSQL {installed}",
                hint=f"install PostgreSQL {version} again and set DATABASE_URL, or dump the "
                f"database with it, move {self.data} away and restore",
            )
        return True

    def make(self, account: Account, search_path: str, *, durable: bool, start_lock: int) -> None:
        """Run initdb in a temporary folder and rename the result to its final place."""
        if not self.password_file.exists():
            write_once(self.password_file, f"{secrets.token_urlsafe(32)}\n".encode())
        account.adopt(self.password_file)
        fresh = self.root / "data.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        account.adopt(fresh)
        try:
            self._initdb(fresh, account, search_path, durable, start_lock)
            fresh.rename(self.data)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        sync_folder(self.root)

    def password(self) -> str:
        try:
            return self.password_file.read_text().strip()
        except FileNotFoundError:
            raise ProvisioningError(
                f"{self.password_file} is missing; without it nobody can log in to the database",
                hint="restore the file from a backup; it belongs to the data folder beside it",
            ) from None

    def log_tail(self, since: int = 0) -> str:
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(since)
            return log.read()[-1500:].decode(errors="replace").strip()

    def _refuse_foreign_content(self) -> None:
        if self.data.exists() and any(self.data.iterdir()):
            raise ProvisioningError(
                f"{self.data} contains files but no database",
                hint="move the folder away; Butlers does not delete files that it did not create",
            )

    def _initdb(
        self, fresh: Path, account: Account, search_path: str, durable: bool, start_lock: int
    ) -> None:
        options = [*self._initdb_options(), *([] if durable else ["--no-sync"])]
        # initdb inherits the start lock: if we are killed, no other process starts over before it ends.
        done = account.run(
            [self._binaries / "initdb", *options, "-D", fresh],
            cwd=self.root,
            search_path=search_path,
            output=subprocess.PIPE,
            keep=[start_lock],
        )
        if done.returncode != 0:
            output = done.stdout.decode(errors="replace").strip()[-1500:]
            raise ProvisioningError(
                f"the database could not be created in {self.root}:\n{output}",
                hint=f"check the free disk space and that {account.name} can write there; "
                "no partial files were left",
            )

    def _initdb_options(self) -> list[str]:
        options = ["-U", "postgres", "--auth=scram-sha-256", f"--pwfile={self.password_file}"]
        options += ["--encoding=UTF8"]
        if major_version(self._binaries) >= _BUILTIN_LOCALE_SINCE:
            # The same sort order on every machine, and no index that a new libc breaks.
            return [*options, "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        return [*options, "--locale=C.UTF-8" if sys.platform == "linux" else "--locale=C"]
