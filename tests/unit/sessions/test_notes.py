"""Notes of sessions that ran at the same time: a restored file keeps what trusted sessions wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from butlers.domain.approval import Question
from butlers.domain.caller import Caller, CallerKind
from butlers.domain.clock import uuid7
from butlers.domain.session import Access, SessionRequest
from butlers.runtimes.base import Grants, Invocation, Terms, Workspace
from butlers.runtimes.containment import _staged_mounts, publish
from butlers.sessions.guard import LiveSession
from butlers.sessions.notes import Notes
from support.messages import request_context


async def _tell(_key: UUID, _text: str) -> None:
    return None


async def _ask(_question: Question) -> bool:
    return False


def notes_in(tmp_path: Path) -> Notes:
    return Notes(tmp_path / "home", "tester", _tell, _ask)


def session(*, owner: bool) -> tuple[SessionRequest, LiveSession]:
    roles = ("owner",) if owner else ("known",)
    request = replace(request_context(), sender_roles=roles)
    live = LiveSession(uuid7(), Caller(CallerKind.SESSION, "tester"))
    return SessionRequest(uuid7(), "note it", "route", request), live


def test_restoring_keeps_what_a_trusted_session_wrote_meanwhile(tmp_path: Path) -> None:
    notes, file = notes_in(tmp_path), tmp_path / "AGENTS.md"
    file.write_text("first\n")
    with notes.guarded(*session(owner=False), (file,)) as news:
        with notes.guarded(*session(owner=True), (file,)) as trusted:
            file.write_text("first\ntrusted\n")
        assert trusted == []
        file.write_text("first\ntrusted\nstranger\n")
    assert file.read_text() == "first\ntrusted\n"
    (restored,) = news
    assert restored.written == "first\ntrusted\nstranger\n"


def test_a_trusted_session_that_wrote_nothing_keeps_nothing(tmp_path: Path) -> None:
    notes, file = notes_in(tmp_path), tmp_path / "AGENTS.md"
    file.write_text("first\n")
    with notes.guarded(*session(owner=False), (file,)):
        file.write_text("stranger\n")
        with notes.guarded(*session(owner=True), (file,)):
            pass
    assert file.read_text() == "first\n"


def staged(folder: Path, private: Path) -> Invocation:
    private.mkdir()
    file = folder / "AGENTS.md"
    grants = Grants(Access.WORKSPACE, writable=(file,))
    call = Invocation("", "", {}, {}, Terms(Workspace(folder, private), grants))
    assert list(_staged_mounts(call))
    return call


def test_publishing_adds_behind_what_another_session_published(tmp_path: Path) -> None:
    folder = tmp_path / "tester"
    folder.mkdir()
    file = folder / "AGENTS.md"
    file.write_text("first\n")
    calls: dict[str, Any] = {name: staged(folder, tmp_path / name) for name in ("a", "b", "c")}
    for name in ("a", "b"):  # c writes nothing
        with (tmp_path / name / "workspace" / "AGENTS.md").open("a") as opened:
            opened.write(f"{name}\n")
    for call in calls.values():
        publish(call)
    assert file.read_text() == "first\na\nb\n"
