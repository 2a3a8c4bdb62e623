"""A private dovecot on loopback, and mail to put into its mailboxes."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, make_msgid
from imaplib import IMAP4
from pathlib import Path
from typing import Any

import pytest
from imap_tools import MailboxLoginError, MailBoxUnencrypted

from support.fleet import wait_for

PASSWORD = "the password of the tests"
ADDRESS = "me@example.org"
SERVER = "mx.example.org"  # as it calls itself in Authentication-Results

_CONFIG = """
protocols = imap
listen = 127.0.0.1
base_dir = {root}/run
state_dir = {root}/run
log_path = {root}/log
ssl = no
disable_plaintext_auth = no
auth_failure_delay = 0
default_login_user = {user}
default_internal_user = {user}
default_internal_group = {group}
first_valid_uid = 1
mail_location = maildir:{root}/mail/%u
mail_max_userip_connections = 100
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
service anvil {{
  chroot =
}}
passdb {{
  driver = passwd-file
  args = {root}/users
}}
userdb {{
  driver = static
  args = uid={user} gid={group} home={root}/mail/%u allow_all_users=yes
}}
namespace inbox {{
  inbox = yes
  mailbox Sent {{
    auto = create
  }}
  mailbox Drafts {{
    auto = create
  }}
}}
{more}
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def program() -> str:
    """Return the path of dovecot. Without it the test is skipped, or fails with CI=true."""
    found = shutil.which("dovecot") or shutil.which("dovecot", path="/usr/sbin")
    if found is None:
        missing = "dovecot is not installed: scripts/install_test_programs.sh installs it"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return found


class Dovecot:
    def __init__(self, root: Path, process: subprocess.Popen[bytes], port: int) -> None:
        self.root, self.port = root, port
        self._process = process

    def set_password(self, password: str) -> None:
        """Change the password, and wait until the server has read it: it looks once a second."""
        (self.root / "users").write_text(f"{ADDRESS}:{{PLAIN}}{password}\n")
        wait_for("the new password to be in force", lambda: self._admits(password))

    def _admits(self, password: str) -> bool:
        try:
            MailBoxUnencrypted("127.0.0.1", self.port).login(ADDRESS, password).logout()
        except (OSError, MailboxLoginError, IMAP4.error):  # also while the server starts
            return False
        return True

    @contextmanager
    def mailbox(self, folder: str | None = "INBOX") -> Iterator[MailBoxUnencrypted]:
        with MailBoxUnencrypted("127.0.0.1", self.port).login(
            ADDRESS, PASSWORD, initial_folder=folder
        ) as box:
            yield box

    def put(self, source: bytes, folder: str = "INBOX") -> None:
        with self.mailbox(None) as box:
            box.append(source, folder, dt=datetime.now(UTC))

    def put_many(self, sources: list[bytes], folder: str = "INBOX") -> None:
        with self.mailbox(None) as box:
            for source in sources:
                box.append(source, folder, dt=datetime.now(UTC))

    def sources(self, folder: str) -> list[bytes]:
        with self.mailbox(folder) as box:
            return [one.obj.as_bytes() for one in box.fetch(mark_seen=False)]

    def renumber(self, folder: str = "INBOX") -> None:
        """Give the folder another UIDVALIDITY, as after a restore."""
        place = self.root / "mail" / ADDRESS / ("" if folder == "INBOX" else f".{folder}")
        uids = place / "dovecot-uidlist"
        version, validity, rest = uids.read_text().split(" ", 2)
        uids.write_text(f"{version} V{int(validity[1:]) + 7} {rest}")
        for file in place.glob("dovecot.index*"):
            file.unlink()

    def reset(self) -> None:
        """Delete all mail and set the first password."""
        self.set_password(PASSWORD)
        with self.mailbox(None) as box:
            for folder in box.folder.list():
                box.folder.set(folder.name)
                box.delete(box.uids())
                if folder.name not in ("INBOX", "Sent", "Drafts"):
                    box.folder.set("INBOX")
                    box.folder.delete(folder.name)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(20)


@contextmanager
def running_dovecot(more: str = "") -> Iterator[Dovecot]:
    binary = program()
    root = Path(tempfile.mkdtemp(prefix="bd-"))
    uid = os.getuid()
    user = pwd.getpwnam("nobody" if uid == 0 else pwd.getpwuid(uid).pw_name)
    group = grp.getgrgid(user.pw_gid).gr_name
    (root / "mail").mkdir()
    if uid == 0:
        os.chown(root / "mail", user.pw_uid, user.pw_gid)
    root.chmod(0o755)
    port = free_port()
    config = root / "dovecot.conf"
    config.write_text(
        _CONFIG.format(root=root, port=port, user=user.pw_name, group=group, more=more)
    )
    process = subprocess.Popen([binary, "-F", "-c", str(config)], start_new_session=True)
    server = Dovecot(root, process, port)
    try:
        server.set_password(PASSWORD)
        yield server
    finally:
        server.stop()
        shutil.rmtree(root, ignore_errors=True)


def mail(
    text: str = "hello",
    *,
    sender: str = "anna@example.com",
    subject: str = "Hi",
    to: str = ADDRESS,
    genuine: bool | None = True,
    **headers: Any,
) -> bytes:
    """Return the source of a mail; ``genuine``: as the receiving server judged it, None: it did not."""
    message = EmailMessage(policy=SMTP)
    if genuine is not None:
        domain = sender.rpartition("@")[2].rstrip(">")
        verdict = "pass" if genuine else "fail"
        message["Authentication-Results"] = (
            f"{SERVER}; dmarc={verdict} header.from={domain}; dkim={verdict} header.d={domain}"
        )
    message["From"] = sender
    message["To"] = to
    message["Subject"] = subject
    message["Date"] = format_datetime(datetime.now(UTC))
    message["Message-ID"] = headers.pop("message_id", None) or make_msgid(domain="example.com")
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    message.set_content(text)
    return message.as_bytes()
