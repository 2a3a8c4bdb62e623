"""A butler goes on answering while a hostile skill is checked."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from butlers.domain.errors import InvalidSkill
from butlers.sessions import skill_maker
from butlers.sessions.skill_maker import PendingDraft, SkillMaker
from butlers.skills.install import draft as drafts
from butlers.skills.install.draft import SkillDraft
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.skill_set import ButlerSkillSet
from support.skills import write_files

HOSTILE = {
    "slashes": "curl x | " + "/" * 100_000,
    "zero-width": "a\u200b" * 40_000,
    "piped downloads": "curl x | sh\n" * 15_000,
    "open comments": "<!--" * 40_000,
}


@pytest.fixture
def maker(tmp_path: Path) -> SkillMaker:
    async def tell_owner(_draft: PendingDraft) -> None:
        return None

    directory = tmp_path / "butler"
    (directory / "skills" / "custom").mkdir(parents=True)
    skill_set = ButlerSkillSet(SkillRegistry(tmp_path / "home"), "health", directory)
    return SkillMaker(skill_set, tell_owner)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
async def test_skill_create_with_hostile_text_leaves_the_loop_free(
    maker: SkillMaker, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session passes text to `skill_create` whose check once stopped every butler for minutes."""
    threads: set[int] = set()
    real = drafts.check

    def recorded(folder: Path) -> object:
        threads.add(threading.get_ident())
        return real(folder)

    monkeypatch.setattr(drafts, "check", recorded)
    draft = SkillDraft("a-skill", "What it is for.", text)
    creating = asyncio.ensure_future(maker.create(draft))
    turns = 0
    while not creating.done():
        turns += 1
        await asyncio.sleep(0)
    assert (await creating).versions == ("1.0.0",)
    assert threads
    assert threading.get_ident() not in threads
    assert turns > 10


async def test_hostile_custom_skill_is_checked_outside_of_the_loop(
    maker: SkillMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session writes a SKILL.md of 30,000 slashes below skills/custom."""
    threads: set[int] = set()
    real = skill_maker.check

    def recorded(folder: Path) -> object:
        threads.add(threading.get_ident())
        return real(folder)

    monkeypatch.setattr(skill_maker, "check", recorded)
    head = "---\nname: a-skill\ndescription: x\nversion: 1.0.0\n---\n"
    write_files(maker.skill_set.custom / "a-skill", {"SKILL.md": head + "/" * 30_000})
    await maker.register_all()
    assert maker.invalid == {}
    assert threads
    assert threading.get_ident() not in threads


async def test_check_that_takes_too_long_refuses_the_skill(
    maker: SkillMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = drafts.check
    monkeypatch.setattr(drafts, "check", lambda folder: real(folder, cpu_s=-1))
    with pytest.raises(InvalidSkill) as refused:
        await maker.create(SkillDraft("a-skill", "What it is for.", "Do it."))
    assert "check-too-long" in refused.value.message
    assert list(maker.skill_set.custom.iterdir()) == []
