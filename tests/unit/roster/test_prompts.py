"""Prompts and descriptions of the shipped butlers name only what their sessions have."""

from __future__ import annotations

import importlib
import typing
from pathlib import Path
from typing import Any

import re2

from butlers.channels.registry import load_channels
from butlers.modules.registry import load_module
from butlers.sessions.system_prompt import read_system_prompt
from butlers.switchboard.classification import TOOL
from support.tester_folder import ROSTER


def test_the_switchboards_prompt_names_no_tool_that_it_lacks() -> None:
    """Its sessions are offered one tool only."""
    prompt = read_system_prompt(ROSTER / "switchboard", "switchboard")
    assert re2.findall(r"`([a-z_]+)", prompt) == [TOOL]
    assert "notify" not in prompt


def test_measurement_types_are_in_the_description() -> None:
    load_module(ROSTER / "health", "health", "health")
    tools: Any = importlib.import_module("butlers_roster_health.tools.measurements")
    units: Any = importlib.import_module("butlers_roster_health.tools.units")
    hints = typing.get_type_hints(tools.measurement_log, include_extras=True)
    described = " ".join(field.description or "" for field in hints["type"].__metadata__)
    assert all(kind.name in described for kind in units.TYPES)


def test_channels_say_whether_they_show_reactions(tmp_path: Path) -> None:
    channels = load_channels(tmp_path)
    shown = {name for name in channels.names if channels.shows_reactions(name)}
    assert {"telegram", "console"} <= shown
    assert "email" not in shown


def test_every_shipped_butler_has_skills() -> None:
    butlers = [file.parent for file in ROSTER.glob("*/butler.toml")]
    assert len(butlers) > 5
    assert all(any((folder / "skills").glob("*/SKILL.md")) for folder in butlers)
