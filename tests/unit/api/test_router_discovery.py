"""A butler's folder adds skills, routes and panels by its files alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from butlers.api.router_discovery import discover_pages
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.skill_set import ButlerSkillSet
from support.tester_folder import ROSTER

ROUTER = """
from fastapi import APIRouter

from .models import Plant

router = APIRouter()


@router.get("/plants")
def plants() -> list[Plant]:
    return []
"""
SKILL = (
    "---\nname: plants\ndescription: Keep plants. Use when something was planted.\n---\n# Plants\n"
)


@pytest.fixture
def garden(tmp_path: Path) -> Path:
    folder = tmp_path / "roster" / "garden"
    files = {
        "api/router.py": ROUTER,
        "api/models.py": "from pydantic import BaseModel\n\n\nclass Plant(BaseModel):\n    name: str\n",
        "skills/plants/SKILL.md": SKILL,
        "skills/plants/scripts/count.py": "print(3)\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.scenario("S001-35")
def test_optional_folders_are_found_without_registration(garden: Path, tmp_path: Path) -> None:
    skills = ButlerSkillSet.open(SkillRegistry(tmp_path / "home"), "garden", garden, ())
    (found,) = skills.skills()
    assert found.name == "plants"
    assert (garden / "skills" / "plants" / "scripts" / "count.py").is_file()

    assert not (garden / "api" / "__init__.py").exists()
    page = discover_pages([garden])["garden"]
    assert page.error is None
    assert page.router is not None
    assert [r.path for r in page.router.routes if isinstance(r, APIRoute)] == ["/plants"]


@pytest.mark.scenario("S001-35")
def test_shipped_folders_follow_the_convention() -> None:
    folders = [folder for folder in ROSTER.iterdir() if (folder / "api").is_dir()]
    assert len(folders) >= 5
    pages = discover_pages(folders)
    assert {name: page.error for name, page in pages.items()} == {
        folder.name: None for folder in folders
    }
    assert all(page.router or page.panels for page in pages.values())
    assert not list(ROSTER.glob("*/api/__init__.py"))
    skills = [folder for folder in ROSTER.glob("*/skills/*") if folder.is_dir()]
    assert len(skills) > 20
    assert all((folder / "SKILL.md").is_file() for folder in skills)


def test_file_that_fails_is_reported_and_left_out(garden: Path) -> None:
    (garden / "api" / "router.py").write_text("router = 1\n")
    page = discover_pages([garden])["garden"]
    assert page.error == "TypeError: `router` is not an APIRouter"
    assert page.router is None
