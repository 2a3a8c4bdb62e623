"""Packs in sessions of the real CLIs: their context is told, their scripts and servers are called, and all of
it fails after one byte has changed."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from butlers.domain.session import SessionResult
from butlers.skills.registry.new_skill import NewSkill
from support.cli_butler import CliButler, OpenCliButler
from support.clis import CLAUDE, GEMINI, Cli
from support.fake_model import Call, Quote, Use
from support.in_process import InProcessButler
from support.skills import write_skill_md
from support.tester_folder import ENVIRONMENT_PY, LOCAL_SERVER, SERVER_PY

CONTEXT = "Say AMARANTH before you post."
PACKS = '[skills]\npacks = ["social-media@1.0.0"]\n'
CALLS = (
    Call("skill_run", {"skill": "social-media", "script": "environment"}),
    Call("social_media_post_tweet", {"content": "hello"}),
    Call("skill_open", {"skill": "codeword"}),
)
REFUSED = "has changed since it was registered"


def furnish(tmp_path: Path, codeword: str) -> Callable[[InProcessButler], None]:
    """A pack with context, a script and a server; and a skill of the butler's making that knows a word."""

    def put(tester: InProcessButler) -> None:
        tester.register(
            "social-media",
            {
                "context/instructions.md": CONTEXT,
                "scripts/environment.py": ENVIRONMENT_PY,
                "mcp/server.py": SERVER_PY,
            },
            context=["context/instructions.md"],
            scripts=["scripts/environment.py"],
            mcpServers=[LOCAL_SERVER],
            envVars=["TWITTER_KEY"],
        )
        folder = tmp_path / "sources" / "codeword"
        front = "name: codeword\ndescription: Knows the word.\nversion: 1.0.0\n"
        write_skill_md(folder, front, f"\nThe codeword is WORD-{codeword}.\n")
        tester.registry.register(NewSkill(folder, by="tester"))

    return put


async def use_all(butler: CliButler) -> SessionResult:
    butler.model.script = [*(Use(call) for call in CALLS), Quote("WORD-[0-9a-f]+")]
    return await butler.run()


async def test_a_session_uses_a_pack_until_one_byte_of_it_changes(
    open_cli_butler: OpenCliButler, cli: Cli, tmp_path: Path
) -> None:
    codeword = secrets.token_hex(8)
    async with open_cli_butler(cli, PACKS, furnish(tmp_path, codeword)) as butler:
        await butler.secret("TWITTER_KEY", "twitter-key-4711-abcdef")
        result = await use_all(butler)
        assert (result.ok, result.text) == (True, f"WORD-{codeword}")
        first, last = butler.model.turns[0], butler.model.turns[-1]
        assert CONTEXT in first.text
        assert f"WORD-{codeword}" not in first.text, "only a session that opens the skill gets it"
        environment, posted, opened = last.results
        assert '"TWITTER_KEY"' in environment.replace("\\", "")
        assert "4711" not in last.text, "its value is not for the model"
        for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "MCP_SERVERS"):
            assert name not in environment
        assert "hello" in posted
        assert f"WORD-{codeword}" in opened

        butler.tamper("social-media", "context/instructions.md")
        butler.tamper("codeword", "SKILL.md")
        butler.model.turns.clear()
        result = await use_all(butler)
        assert result.text == "nothing like it"
        assert [REFUSED in answer for answer in butler.model.turns[-1].results] == [True] * 3
        assert CONTEXT not in butler.model.turns[0].text
        assert codeword not in json.dumps([turn.body for turn in butler.model.turns])


async def test_full_session_reads_mounted_skills(
    open_cli_butler: OpenCliButler, cli: Cli, tmp_path: Path
) -> None:
    codeword = secrets.token_hex(8)
    folder = ".claude" if cli.name == "claude-code" else ".agents"
    levels = f'access = "full"\n{PACKS}'
    async with open_cli_butler(cli, levels, furnish(tmp_path, codeword)) as butler:
        butler.model.script = [
            Use(cli.run(f"cat ~/{folder}/skills/codeword/SKILL.md")),
            Quote("WORD-[0-9a-f]+"),
        ]
        ended = await butler.trigger()
        assert (ended["outcome"], ended["output"]) == ("ok", f"WORD-{codeword}")


@pytest.mark.parametrize("cli", [CLAUDE, GEMINI], indirect=True, ids=lambda cli: cli.name)
async def test_a_session_in_its_workspace_has_the_same_tools(
    open_cli_butler: OpenCliButler, cli: Cli, tmp_path: Path
) -> None:
    codeword = secrets.token_hex(8)
    levels = f'access = "workspace"\n{PACKS}'
    async with open_cli_butler(cli, levels, furnish(tmp_path, codeword)) as butler:
        butler.model.script = [*(Use(call) for call in CALLS), Quote("WORD-[0-9a-f]+")]
        ended = await butler.trigger()
        assert (ended["outcome"], ended["output"]) == ("ok", f"WORD-{codeword}")
        (row,) = await butler.rows("SELECT access FROM sessions")
        assert row["access"] == "workspace"
