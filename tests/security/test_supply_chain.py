"""Files of skills from elsewhere: text that a careless reader would run or unfold."""

from __future__ import annotations

from pathlib import Path

import pytest

from butlers.skills.formats.base import SkillFile
from butlers.skills.formats.skill_md import FORMAT

BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 10)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
TAGS = {
    "call": "!!python/object/apply:os.mkdir ['{place}']",
    "new object": "!!python/object/new:os.mkdir ['{place}']",
    "module": "!!python/module:antigravity",
    "name": "!!python/name:os.system",
    "own tag": "!evil '{place}'",
    "binary": "!!binary AAECAwQ=",
    "merge": "{{<<: {{k: v}}}}",
}


@pytest.mark.parametrize("written", TAGS.values(), ids=TAGS)
def test_tags_of_yaml_run_nothing(tmp_path: Path, written: str) -> None:
    """Attack: a tag in the front matter makes the reader call a function or build an object."""
    place = tmp_path / "made"
    front = (
        f"name: a-skill\ndescription: x\nmetadata: {{k: 1}}\nevil: {written.format(place=place)}"
    )
    reading = FORMAT.read(
        SkillFile(Path("a-skill/SKILL.md"), f"---\n{front}\n---\nDo it.".encode())
    )
    assert reading.skill is not None
    assert (reading.skill.name, reading.skill.description) == ("a-skill", "x")
    assert not place.exists()


def test_bomb_of_yaml_aliases_is_not_unfolded() -> None:
    """Attack: nine lines of aliases that stand for a thousand million values."""
    text = f"---\nname: a-skill\ndescription: x\n{BOMB}---\nDo it."
    reading = FORMAT.read(SkillFile(Path("a-skill/SKILL.md"), text.encode()))
    assert reading.skill is not None
    assert reading.skill.description == "x"
    assert "frontmatter-not-yaml" in reading.codes()
    assert len(repr(reading)) < 20_000
