"""Adding a pack to a butler.toml leaves the rest of the file as it was."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from butlers.config.packs import name_pack
from butlers.domain.errors import ConfigInvalid

HEAD = '# Mine.\n[butler]\nname = "mine"\nport = 0\n'


def named(folder: Path, text: str, pack: str = "new@1.0.0") -> str:
    file = folder / "butler.toml"
    file.write_text(text)
    name_pack(file, pack)
    return file.read_text()


def packs(text: str) -> list[str]:
    found: list[str] = tomllib.loads(text)["skills"]["packs"]
    return found


@pytest.mark.parametrize(
    ("skills", "expected"),
    [
        ("", ["new@1.0.0"]),
        ("[skills]\n", ["new@1.0.0"]),
        ("[skills]", ["new@1.0.0"]),
        ("[skills]\nreflexes = false  # kept\n", ["new@1.0.0"]),
        ('[skills]\npacks = ["old@^1"] # mine\n', ["old@^1", "new@1.0.0"]),
        (
            '[skills]\npacks = [\n  "old@1.0.0", # why\n  "older",\n]\n',
            ["old@1.0.0", "older", "new@1.0.0"],
        ),
        ('[skills]\npacks = ["new@0.9.0", "old"]\n', ["new@1.0.0", "old"]),
        ('[skills]\npacks = ["new"]\n[modules.x]\npacks = ["a"]\n', ["new@1.0.0"]),
    ],
)
def test_a_pack_is_added_to_the_list(tmp_path: Path, skills: str, expected: list[str]) -> None:
    text = named(tmp_path, HEAD + skills)
    assert packs(text) == expected
    assert text.startswith(HEAD)
    before = tomllib.loads(HEAD + skills)
    before.setdefault("skills", {})["packs"] = expected
    assert tomllib.loads(text) == before


def test_comments_elsewhere_and_permissions_stay(tmp_path: Path) -> None:
    file = tmp_path / "butler.toml"
    file.write_text(f"{HEAD}[skills]\n# why\nreflexes = false # so\n[butler.env]\n# none\n")
    file.chmod(0o640)
    assert name_pack(file, "new@1.0.0")
    text = file.read_text()
    assert "[skills]\n# why\nreflexes = false # so\n" in text
    assert text.endswith("\n[butler.env]\n# none\n")
    assert file.stat().st_mode & 0o777 == 0o640
    assert not name_pack(file, "new@1.0.0")


def test_pack_list_keeps_its_formatting(tmp_path: Path) -> None:
    written = '[skills]\npacks = [\n    "old@1.0.0", # why\n    "new@0.9.0",\n]\n'
    assert named(tmp_path, HEAD + written) == HEAD + written.replace("new@0.9.0", "new@1.0.0")
    assert named(tmp_path, HEAD + written, "more@2.0.0") == HEAD + written.replace(
        '    "new@0.9.0",\n', '    "new@0.9.0",\n    "more@2.0.0",\n'
    )


@pytest.mark.parametrize(
    ("skills", "expected"),
    [
        ('skills.packs = ["old"]\n', 'skills.packs = ["old", "new@1.0.0"]\n'),
        ('skills = { packs = ["old"] }\n', 'skills = { packs = ["old", "new@1.0.0"] }\n'),
    ],
)
def test_dotted_keys_and_inline_tables_are_edited(
    tmp_path: Path, skills: str, expected: str
) -> None:
    assert named(tmp_path, skills + HEAD) == expected + HEAD


@pytest.mark.parametrize("skills", ["[skills\n", "skills = 1\n", 'skills.packs = "old"\n'])
def test_a_file_that_cannot_be_edited_stays_as_it_was(tmp_path: Path, skills: str) -> None:
    text = skills + HEAD
    with pytest.raises(ConfigInvalid) as refused:
        named(tmp_path, text)
    assert refused.value.hint == "write it there by hand: [skills] packs = [...]"
    assert (tmp_path / "butler.toml").read_text() == text
