"""Skills of sessions are registered folder by folder; no folder ends the watch."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from butlers.domain import tasks
from butlers.sessions import skill_maker
from butlers.sessions.skill_maker import CREATED, INVALID, PendingDraft, SkillMaker
from butlers.skills.install.draft import SkillDraft
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.skill_set import ButlerSkillSet
from support.skills import write_pack, write_skill_md
from support.waiting import until

UNSEEN = "a-\u200bskill"


@pytest.fixture
def skill_set(tmp_path: Path) -> ButlerSkillSet:
    directory = tmp_path / "mine"
    (directory / "skills").mkdir(parents=True)
    return ButlerSkillSet(SkillRegistry(tmp_path / "home"), "mine", directory)


def write(skill_set: ButlerSkillSet, folder: str, **fields: Any) -> None:
    write_pack(skill_set.custom / folder, **{"version": "1.0.0", "owner": "mine", **fields})


async def ignore_draft(_draft: PendingDraft) -> None:
    pass


@dataclass
class Owner:
    """An owner that cannot be told at first."""

    away: bool = True
    told: list[str] = field(default_factory=list)

    async def tell(self, draft: PendingDraft) -> None:
        if self.away:
            raise ConnectionResetError("the database is away")
        self.told.append(draft.label)


async def test_unprintable_folder_name_is_reported_and_the_next_folder_registered(
    skill_set: ButlerSkillSet,
) -> None:
    write(skill_set, UNSEEN, id="Not An Id")
    write(skill_set, "z-skill", id="z-skill")
    maker = SkillMaker(skill_set, ignore_draft)
    with capture_logs() as log:
        await maker.register_all()
    assert [line["event"] for line in log] == [INVALID, CREATED]
    assert "manifest-id" in maker.invalid[UNSEEN]
    assert "a-\\u200bskill" in maker.invalid[UNSEEN]
    assert set(skill_set.registry.catalog().skills) == {"z-skill"}


async def test_failed_notice_does_not_end_the_watch(skill_set: ButlerSkillSet) -> None:
    owner = Owner()
    write(skill_set, "a-skill", id="a-skill")
    write(skill_set, "b-skill", id="Not An Id")
    write(skill_set, "c-skill", id="c-skill")
    maker = SkillMaker(skill_set, owner.tell)
    with capture_logs() as log:
        await maker.register_all()
        made = await maker.create(SkillDraft("d-skill", "Does it.", "# How"))
    assert set(skill_set.registry.catalog().skills) == {"a-skill", "c-skill", "d-skill"}
    assert made.id == "d-skill"
    assert set(maker.invalid) == {"b-skill"}
    assert [line["event"] for line in log].count("owner not told of a skill") == 3
    owner.away = False
    for _time in range(2):
        await maker.send_notices()
    assert owner.told == ["a-skill@1.0.0", "c-skill@1.0.0", "d-skill@1.0.0"]


async def test_failed_notice_does_not_block_the_others(skill_set: ButlerSkillSet) -> None:
    told: list[PendingDraft] = []

    async def tell_owner(draft: PendingDraft) -> None:
        if draft.label.startswith("a-"):
            raise ValueError("no such words")
        told.append(draft)

    write(skill_set, "a-skill", id="a-skill")
    write(skill_set, "b-skill", id="b-skill", description="Ends \0 early.")
    write(skill_set, "c-skill", id="c-skill")
    maker = SkillMaker(skill_set, tell_owner)
    await maker.register_all()
    assert [draft.label for draft in told] == ["b-skill@1.0.0", "c-skill@1.0.0"]
    assert "\0" not in told[0].description, "no text of ours can hold it"


async def test_draft_of_a_tool_is_reported_without_a_skill_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skill_maker, "CHECK_MS", 10)
    skill_set = ButlerSkillSet(SkillRegistry(tmp_path / "home"), "mine", tmp_path / "mine")
    owner = Owner()
    maker = SkillMaker(skill_set, owner.tell)
    running = asyncio.create_task(maker.run())
    await asyncio.sleep(0)
    await maker.create(SkillDraft("d-skill", "Does it.", "# How"))
    owner.away = False
    await until("it to be told", lambda: owner.told == ["d-skill@1.0.0"] or None)
    await tasks.end(running)


async def test_unexpected_folder_error_is_reported_and_the_next_folder_registered(
    skill_set: ButlerSkillSet,
) -> None:
    write(skill_set, "a-skill", id="a-skill")
    maker = SkillMaker(skill_set, ignore_draft)
    with capture_logs() as log:
        await maker.register_folder("a\0b")  # the file system itself refuses such a name
        await maker.register_folder("x" * 5_000)
        await maker.register_all()
    assert set(skill_set.registry.catalog().skills) == {"a-skill"}
    failed = [line for line in log if line["event"] not in (INVALID, CREATED)]
    assert all(line["log_level"] == "error" for line in failed)


async def test_end_of_the_folder_watch_is_logged(skill_set: ButlerSkillSet) -> None:
    async def tell_owner(draft: PendingDraft) -> None:
        shutil.rmtree(skill_set.custom.parent)

    write(skill_set, "a-skill", id="a-skill")
    with capture_logs() as log:
        await SkillMaker(skill_set, tell_owner).run()
    assert [line["event"] for line in log] == [CREATED, "skill folder is not watched any more"]


async def test_folder_that_appears_during_the_first_scan_is_registered(
    skill_set: ButlerSkillSet,
) -> None:
    async def tell_owner(draft: PendingDraft) -> None:
        if draft.label == "first@1.0.0":
            write(skill_set, "second", id="second")

    write(skill_set, "first", id="first")
    running = asyncio.create_task(SkillMaker(skill_set, tell_owner).run())
    try:
        catalog = skill_set.registry.catalog
        await until("the second", lambda: "second" in catalog().skills or None)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_first_skill_creates_the_folder(
    skill_set: ButlerSkillSet,
) -> None:
    assert not skill_set.custom.exists()
    await SkillMaker(skill_set, ignore_draft).create(SkillDraft("d-skill", "Does it.", "# How"))
    assert [path.name for path in skill_set.custom.iterdir()] == ["d-skill"]
    assert skill_set.find("d-skill").draft


async def test_missing_version_is_told_and_a_missing_owner_is_the_butler(
    skill_set: ButlerSkillSet,
) -> None:
    write_skill_md(skill_set.custom / "notes", "name: notes\ndescription: Notes.\n")
    write(skill_set, "report", id="report", owner=None)
    maker = SkillMaker(skill_set, ignore_draft)
    await maker.register_all()
    assert maker.invalid == {
        "notes": "notes has no version: write `version: 1.0.0` into its front matter"
    }
    report = skill_set.registry.get("report")
    assert (report.owner, report.versions) == ("mine", ("1.0.0",))
