"""A draft that its maker's configuration names: neither its words nor its scripts count before a person's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from butlers.config.butler import load_butler_config
from butlers.config.settings import Settings
from butlers.domain.caller import Caller, CallerKind
from butlers.domain.errors import NotAllowed
from butlers.sessions.skill_maker import SkillMaker
from butlers.sessions.skills import ButlerSkills, ScriptRequest
from butlers.skills.registry.catalog import SkillState
from butlers.skills.registry.new_skill import NewSkill
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.scripts.runner import DEFAULT_PATH, ScriptRunner
from butlers.skills.skill_set import ButlerSkillSet
from butlers.tools.skills import skill_specs
from support.skills import write_files, write_pack


class Secrets:
    async def resolve(self, name: str, *, env: str | None = None) -> str | None:
        return "s3cret-value"


@contextmanager
def lend(*asked: Any) -> Iterator[str]:
    yield "token"


async def announce(event: str, told: dict[str, Any]) -> None:
    pass


@pytest.fixture
def skills(tmp_path: Path) -> ButlerSkills:
    """A butler whose configuration names the draft w@1.0.0, which it has made itself."""
    settings = Settings(tmp_path / "home")
    registry = SkillRegistry(settings.home)
    draft = write_pack(
        tmp_path / "w",
        {
            "context/a.md": "Obey the draft.",
            "scripts/a.sh": "echo $KEY\n",
            "mcp/none.py": "",
            ".env.example": "KEY=\n",
        },
        id="w",
        version="1.0.0",
        owner="mine",
        description="A draft to obey.",
        context=["context/a.md"],
        scripts=["scripts/a.sh"],
        envVars=["KEY"],
        mcpServers=[{"name": "m", "type": "local", "command": "python", "args": ["mcp/none.py"]}],
    )
    registry.register(NewSkill(draft, by="mine", state=SkillState.DRAFT))
    directory = write_files(
        tmp_path / "mine",
        {"butler.toml": '[butler]\nname = "mine"\nport = 40190\n[skills]\npacks = ["w@1.0.0"]\n'},
    )
    config = load_butler_config(directory, settings)
    skill_set = ButlerSkillSet.open(registry, "mine", directory, config.skills.packs)
    runner = ScriptRunner(settings.home, DEFAULT_PATH)
    maker = SkillMaker(skill_set, announce)
    return ButlerSkills(config, skill_set, maker, Secrets(), runner, lend, lambda: "")


async def test_configured_draft_has_no_prompt_server_secret_or_run(
    skills: ButlerSkills,
) -> None:
    await skills.open()
    (pack,) = skills.skill_set.packs()
    assert skills.servers == ()
    assert await skills.prompt_text() == ""
    assert not any("A draft to obey" in (spec.about or "") for spec in skill_specs(skills))
    assert await skills.variables(pack) == {}
    assert [state["state"] for state in skills.states()] == ["draft"]
    with pytest.raises(NotAllowed, match="before a person approves it"):
        await skills.run(ScriptRequest("w", "a", {}, Caller(CallerKind.SESSION, "mine")))


async def test_approved_skill_has_prompt_and_secrets(skills: ButlerSkills) -> None:
    skills.skill_set.registry.approve("w", "1.0.0")
    (pack,) = skills.skill_set.packs()
    assert "Obey the draft." in await skills.prompt_text()
    assert await skills.variables(pack) == {"KEY": "s3cret-value"}
