"""What sessions make is taken folder by folder; nothing that one of them holds ends the taking."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from butlers.sessions.skill_maker import CREATED, INVALID, SkillMaker
from butlers.skills.making import Draft
from butlers.skills.registry import SkillRegistry
from butlers.skills.shelf import Shelf
from support.skills import write_pack

UNSEEN = "a-\u200bskill"


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    directory = tmp_path / "mine"
    (directory / "skills").mkdir(parents=True)
    return Shelf(SkillRegistry(tmp_path / "home"), "mine", directory)


def write(shelf: Shelf, folder: str, **fields: Any) -> None:
    write_pack(shelf.custom / folder, **{"version": "1.0.0", "owner": "mine", **fields})


async def test_a_name_that_is_not_seen_is_told_and_the_next_folder_is_taken(shelf: Shelf) -> None:
    told: list[tuple[str, dict[str, Any]]] = []

    async def announce(event: str, said: dict[str, Any]) -> None:
        told.append((event, said))

    write(shelf, UNSEEN, id="Not An Id")
    write(shelf, "z-skill", id="z-skill")
    maker = SkillMaker(shelf, announce)
    await maker.take_all()
    assert [event for event, _ in told] == [INVALID, CREATED]
    assert "manifest-id" in maker.invalid[UNSEEN]
    assert "a-\\u200bskill" in maker.invalid[UNSEEN]
    assert set(shelf.registry.catalogue().skills) == {"z-skill"}


async def test_who_can_not_be_told_does_not_end_it(shelf: Shelf) -> None:
    async def announce(event: str, said: dict[str, Any]) -> None:
        raise ConnectionResetError("the database is away")

    write(shelf, "a-skill", id="a-skill")
    write(shelf, "b-skill", id="Not An Id")
    write(shelf, "c-skill", id="c-skill")
    maker = SkillMaker(shelf, announce)
    with capture_logs() as log:
        await maker.take_all()
        made = await maker.create(Draft("d-skill", "Does it.", "# How"))
    assert set(shelf.registry.catalogue().skills) == {"a-skill", "c-skill", "d-skill"}
    assert made.id == "d-skill"
    assert set(maker.invalid) == {"b-skill"}
    assert [line["event"] for line in log] == ["skill not announced"] * 4


async def test_a_folder_that_nobody_foresaw_is_told_and_the_next_one_taken(shelf: Shelf) -> None:
    async def announce(event: str, said: dict[str, Any]) -> None:
        pass

    write(shelf, "a-skill", id="a-skill")
    maker = SkillMaker(shelf, announce)
    with capture_logs() as log:
        await maker.take("a\0b")  # the file system itself refuses such a name
        await maker.take("x" * 5_000)
        await maker.take_all()
    assert set(shelf.registry.catalogue().skills) == {"a-skill"}
    assert all(line["log_level"] == "error" for line in log)


async def test_the_watch_does_not_end_in_silence(shelf: Shelf) -> None:
    async def announce(event: str, said: dict[str, Any]) -> None:
        shutil.rmtree(shelf.custom.parent)

    write(shelf, "a-skill", id="a-skill")
    with capture_logs() as log:
        await SkillMaker(shelf, announce).run()
    assert [line["event"] for line in log] == ["skills are not watched any more"]


async def test_the_first_skill_of_a_fresh_butler_makes_the_folder(shelf: Shelf) -> None:
    async def announce(event: str, said: dict[str, Any]) -> None:
        pass

    assert not shelf.custom.exists()
    await SkillMaker(shelf, announce).create(Draft("d-skill", "Does it.", "# How"))
    assert [path.name for path in shelf.custom.iterdir()] == ["d-skill"]
    assert shelf.find("d-skill").draft
