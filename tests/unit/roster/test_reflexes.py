"""Reflexes of Health and Travel: enough examples, each taken by its own reflex and no other one."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from butlers.skills.reflexes import Reflex, load_reflexes
from butlers.switchboard.triage import FALLBACK
from support.tester_folder import ROSTER

DOMAINS = ("health", "travel")
MIN_REFLEXES, MIN_EXAMPLES, MIN_NEAR_MISSES = 15, 5, 3


def roster_reflexes() -> list[tuple[str, Reflex]]:
    folders = sorted(folder for folder in ROSTER.iterdir() if (folder / "skills").is_dir())
    return [
        (folder.name, reflex)
        for folder in folders
        for reflex in load_reflexes(folder / "skills").reflexes
    ]


@pytest.mark.parametrize("butler", DOMAINS)
def test_domain_has_enough_reflexes_with_examples_and_near_misses(butler: str) -> None:
    book = load_reflexes(ROSTER / butler / "skills")
    assert not book.diagnostics, "\n".join(str(found) for found in book.diagnostics)
    assert len(book.reflexes) >= MIN_REFLEXES
    for reflex in book.reflexes:
        assert len(reflex.examples) >= MIN_EXAMPLES, reflex.name
        assert len(reflex.not_examples) >= MIN_NEAR_MISSES, reflex.name


@pytest.mark.parametrize("butler", DOMAINS)
def test_each_example_is_taken_by_no_other_reflex_of_the_roster(butler: str) -> None:
    everyone = roster_reflexes()
    for name, reflex in everyone:
        if name != butler:
            continue
        for example in reflex.examples:
            takers = [
                (other, candidate.name)
                for other, candidate in everyone
                if other != FALLBACK  # its patterns are broad, so triage tries them last
                and any(trigger.matches(example) for trigger in candidate.triggers)
            ]
            assert takers == [(butler, reflex.name)], example


@pytest.mark.parametrize("butler", DOMAINS)
def test_each_schedule_has_a_check_and_a_skill_with_both_paths(butler: str) -> None:
    folder: Path = ROSTER / butler
    config = tomllib.loads((folder / "butler.toml").read_text())
    for schedule in config["butler"]["schedule"]:
        assert schedule["check"], schedule["name"]
        text = (folder / "skills" / schedule["name"] / "SKILL.md").read_text()
        assert schedule["name"] in schedule["prompt"]
        assert "notify" in text
        assert "without `notify`" in text, f"{schedule['name']}: the path with nothing to say"
