"""The shared skill about memory: it matches the tools, and AGENTS.md files leave the taxonomy to it."""

from __future__ import annotations

import inspect
import re

import pytest

from butlers.modules.memory import MemoryModule
from butlers.modules.memory.items import Permanence
from butlers.tools.declaration import spec_of
from support.tester_folder import ROSTER

SKILL = ROSTER / "shared" / "skills" / "butler-memory" / "SKILL.md"
CALL = re.compile(r"\b(memory_[a-z_]+)\(([^)]*)\)")


def test_every_call_in_the_skill_fits_a_tool() -> None:
    tools = {spec_of(tool).name: spec_of(tool).function for tool in MemoryModule.tools}
    text = SKILL.read_text()
    calls = CALL.findall(text)
    assert len(calls) >= 8
    for name, arguments in calls:
        known = set(inspect.signature(tools[name]).parameters)
        assert set(re.findall(r"(\w+)=", arguments)) <= known, name
    assert set(re.findall(r"\bmemory_[a-z_]+\b", text)) <= set(tools)


@pytest.mark.scenario("S001-52")
def test_taxonomy_of_memory_is_in_the_skill_and_not_in_agents_files() -> None:
    text = SKILL.read_text()
    for level in Permanence:
        assert f"`{level}`" in text
    for word in ("predicate", "qualifier", "tags", "entity_id", "memory_store_fact("):
        assert word in text
    notes = sorted(ROSTER.glob("*/AGENTS.md"))
    assert len(notes) > 3
    for file in notes:
        written = file.read_text()
        assert not CALL.search(written), file
        levels = [level for level in Permanence if f"`{level}`" in written]
        assert len(levels) < 2, file
        about = [line for line in written.splitlines() if "memory" in line.lower()]
        assert len(about) <= 3, file
