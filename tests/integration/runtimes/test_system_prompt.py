"""A butler's CLAUDE.md on its way to the model: expanded by us, and not changed otherwise."""

from __future__ import annotations

from pathlib import Path

from butlers.sessions.system_prompt import read_system_prompt
from support.cli_butler import OpenCliButler
from support.clis import Cli
from support.fake_model import Say

CLAUDE_MD = """\
# You are ${AgentSkills}

@AGENTS.md
@no-such-file.md
${SubAgents} ${AvailableTools} ${HOME} $HOME $(id) `id` {{x}} "double" 'single' \\\\ @AGENTS.md



Three empty lines are three.

"""
NOTES = "Prefers `metric` units, $5 and ${AvailableTools}.\n"


async def test_model_gets_the_expanded_file(open_cli_butler: OpenCliButler, cli: Cli) -> None:
    async with open_cli_butler(cli) as butler:
        folder: Path = butler.directory
        (folder / "CLAUDE.md").write_text(CLAUDE_MD)
        (folder / "AGENTS.md").write_text(NOTES)
        butler.model.script = [Say("Understood.")]
        assert (await butler.trigger())["output"] == "Understood."
        expected = read_system_prompt(folder, "tester")
    assert expected == CLAUDE_MD.replace("\n@AGENTS.md\n", f"\n{NOTES}", 1)
    (turn,) = butler.model.turns
    assert turn.strings.count(expected) == 1
