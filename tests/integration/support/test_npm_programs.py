"""Every npm program of the tests starts, and is the one that was pinned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support import npm
from support.programs import Programs

PACKAGES = {
    ("clis", "claude"): "@anthropic-ai/claude-code",
    ("clis", "codex"): "@openai/codex",
    ("clis", "gemini"): "@google/gemini-cli",
    ("mcp", "conformance"): "@modelcontextprotocol/conformance",
    ("mcp", "inspector"): "@modelcontextprotocol/inspector",
}


@pytest.mark.parametrize(("name", "program"), PACKAGES)
async def test_a_program_says_its_pinned_version(name: str, program: str, home: Path) -> None:
    wanted = json.loads((npm.SETS / name / npm.WANTED).read_text())

    ended = await Programs(npm.installed(name), home).run(program, "--version")

    assert ended.code == 0, ended.errors
    assert wanted["dependencies"][PACKAGES[name, program]] in ended.output


async def test_the_protocol_s_programs_run_on_a_node_of_their_own(home: Path) -> None:
    ended = await Programs(npm.installed("mcp"), home).run("node", "--version")
    assert ended.output.startswith("v22.")


def test_every_program_of_every_set_is_tested_here() -> None:
    wanted = {
        (file.parent.name, program)
        for file in npm.SETS.glob(f"*/{npm.WANTED}")
        for program in json.loads(file.read_text())["programs"]
    }
    assert wanted == {*PACKAGES, ("mcp", "node"), ("pages", "axe.min.js")}
