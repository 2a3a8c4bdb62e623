"""Concurrent writers of the registry: no write is lost, and no reader sees a partial file."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from butlers.skills.registry.new_skill import NewSkill
from butlers.skills.registry.registry import SkillRegistry
from support.skills import write_pack

WRITER = """
import sys
from pathlib import Path
from butlers.domain.errors import ButlersError
from butlers.skills.registry.new_skill import NewSkill
from butlers.skills.registry.registry import SkillRegistry

registry = SkillRegistry(Path(sys.argv[1]))
for folder in sys.argv[2:]:
    new = NewSkill(Path(folder))
    try:
        registry.register(new)
    except ButlersError as error:
        print(error.code)
"""
WRITERS, SKILLS = 4, 6


def test_writers_take_turns_and_no_write_is_lost(tmp_path: Path) -> None:
    home = tmp_path / "home"
    folders = [
        [
            str(
                write_pack(
                    tmp_path / f"w{writer}" / f"s{writer}-{number}", id=f"s{writer}-{number}"
                )
            )
            for number in range(SKILLS)
        ]
        for writer in range(WRITERS)
    ]
    command = [sys.executable, "-c", WRITER, str(home)]
    writers = [subprocess.Popen([*command, *own], stdout=subprocess.PIPE) for own in folders]
    registry, done, seen = SkillRegistry(home), threading.Event(), []

    def look() -> None:
        while not done.is_set():
            seen.append(len(registry.list()))  # raises on a partial file

    reader = threading.Thread(target=look)
    reader.start()
    outputs = [writer.communicate(timeout=120)[0] for writer in writers]
    done.set()
    reader.join()
    assert outputs == [b""] * WRITERS
    assert len(registry.list()) == WRITERS * SKILLS
    assert seen == sorted(seen)
    for skill in registry.list():
        assert registry.path(skill.id, skill.latest).is_dir()


def test_first_registration_of_a_version_wins(tmp_path: Path) -> None:
    home = tmp_path / "home"
    folders = [
        write_pack(tmp_path / str(n) / "same", id="same", description=f"of {n}") for n in range(4)
    ]
    command = [sys.executable, "-c", WRITER, str(home)]
    writers = [
        subprocess.Popen([*command, str(folder)], stdout=subprocess.PIPE) for folder in folders
    ]
    outputs = sorted(writer.communicate(timeout=120)[0] for writer in writers)
    assert outputs == [b"", *[b"skill_version_taken\n"] * 3]
    registry = SkillRegistry(home)
    place = registry.path("same", "2.1.0")
    assert place.is_dir()
    winner = next(folder for folder in folders if _same(folder, place))
    assert registry.register(NewSkill(winner)) == registry.get("same")


def _same(folder: Path, place: Path) -> bool:
    return (folder / "manifest.json").read_bytes() == (place / "manifest.json").read_bytes()
