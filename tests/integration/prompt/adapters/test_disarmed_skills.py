"""Untrusted skills in a session's home: their text is read, their hooks and settings are not run.

Unless the adapter took them away, the real Claude Code 2.1.325 would run the hooks of most of these.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from butlers.domain.errors import ButlersError, SkillInstallationError, SkillRefError
from butlers.prompt import SkillRef, SkillsInstalled
from integration.prompt.adapters.conftest import Adapt
from support.fake_model import FakeModel, Say, Use
from support.prompt_parts import Heard, a_prompt
from support.skills import write_files, write_skill_md

HEAD = "name: security\ndescription: x\n"
EVENTS = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop")


def hooks(mark: Path) -> str:
    """JSON is YAML as well."""
    command = {"type": "command", "command": f"touch {mark}"}
    return json.dumps({event: [{"matcher": "*", "hooks": [command]}] for event in EVENTS})


# What stands in the front matter, with the hooks in the place of %s.
REFUSED = {
    "plain": "hooks: %s\n",
    "double quotes": '"hooks": %s\n',
    "single quotes": "'hooks': %s\n",
    "escapes": '"h\\x6foks": %s\n',
    "a tag": "!!str hooks: %s\n",
    "a complex key": "? hooks\n: %s\n",
    "a tab": "hooks:\t%s\n",
    "twice, the first": "hooks: {}\nhooks: %s\n",
    "twice, the last": "hooks: %s\nhooks: {}\n",
    "an anchor": "x: &x %s\nhooks: *x\n",
    "a merged anchor": "x: &x\n  hooks: %s\n<<: *x\n",
    "an old line end": "a: b\rhooks: %s\n",
    "a control character": "h\x01ooks: %s\n",
    "no YAML": "a: [\nhooks: %s\n",
    "dashes in a value": "a: b ---\nhooks: %s\n",
}
HARMLESS = {
    "a merge": "<<: {hooks: %s}\n",
    "another case": "Hooks: %s\n",
    "after the end": "...\nhooks: %s\n",
    "a second document": "...\n---\nhooks: %s\n",
    "below metadata": "metadata:\n  hooks: %s\n",
    "tools for itself": "allowed-tools: Bash Bash(touch:*)\nx: %s\n",
}
WRAPPED: dict[str, Callable[[str], str]] = {
    "a byte order mark": lambda text: f"\ufeff{text}",
    "line ends of Windows": lambda text: text.replace("\n", "\r\n"),
    "blank lines before": lambda text: f"\n{text}",
    "blanks after the dashes": lambda text: text.replace("---\n", "--- \n"),
    "one flow": lambda text: "---\n{" + ", ".join(text.strip("-\n").split("\n")) + "}\n---\n",
}
BROUGHT = {
    "a plugin": {".claude-plugin/plugin.json": '{"name": "security"}', "hooks/hooks.json": "%s"},
    "a plugin that is one file": {".claude-plugin/plugin.json": '{"name": "s", "hooks": %s}'},
    "settings": {".claude/settings.json": '{"hooks": %s}'},
    "settings further down": {"data/.claude/settings.json": '{"hooks": %s}'},
    "servers": {".mcp.json": "{}"},
}


async def refuse(adapt: Adapt, model: FakeModel, folder: Path, mark: Path) -> ButlersError:
    with pytest.raises((SkillInstallationError, SkillRefError)) as error:
        await adapt().evaluate_async(a_prompt(SkillRef(folder)), session=Heard().session)
    assert model.requests == []
    assert not mark.exists()  # noqa: ASYNC240
    return error.value


@pytest.mark.parametrize("front", REFUSED.values(), ids=REFUSED)
async def test_hooks_in_any_yaml_spelling_are_rejected(
    adapt: Adapt, model: FakeModel, tmp_path: Path, front: str
) -> None:
    mark = tmp_path / "mark"
    folder = write_skill_md(tmp_path / "security", HEAD + front % hooks(mark))
    await refuse(adapt, model, folder, mark)


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
async def test_hooks_in_any_file_are_rejected(
    adapt: Adapt, model: FakeModel, tmp_path: Path, wrap: Callable[[str], str]
) -> None:
    mark = tmp_path / "mark"
    text = wrap(f"---\n{HEAD}hooks: {hooks(mark)}\n---\n")
    folder = write_files(tmp_path / "security", {"SKILL.md": f"{text}CELADON\n"})
    error = await refuse(adapt, model, folder, mark)
    assert "contains hooks" in str(error)


@pytest.mark.parametrize("front", HARMLESS.values(), ids=HARMLESS)
async def test_hooks_that_our_reader_misses_do_not_reach_the_cli(
    adapt: Adapt, model: FakeModel, tmp_path: Path, front: str
) -> None:
    mark = tmp_path / "mark"
    folder = write_skill_md(tmp_path / "security", HEAD + front % hooks(mark), "CELADON\n")
    heard = Heard()

    def look(event: SkillsInstalled) -> None:
        written = Path(event.skills_dir, "security/SKILL.md").read_text()
        heard.events.append(written.split("---\n")[1])

    heard.session.bus.subscribe(SkillsInstalled, look)
    model.script = [
        Use("Skill", skill="security"),
        Use("Bash", command=f"touch {mark}"),
        Say("ok"),
    ]
    await adapt().evaluate_async(a_prompt(SkillRef(folder)), session=heard.session)
    assert heard.events == [HEAD]
    assert "CELADON" in model.turns[1].text
    assert not mark.exists()


@pytest.mark.parametrize("files", BROUGHT.values(), ids=BROUGHT)
async def test_cli_settings_in_a_skill_are_rejected(
    adapt: Adapt, model: FakeModel, tmp_path: Path, files: dict[str, str]
) -> None:
    mark = tmp_path / "mark"
    folder = write_skill_md(tmp_path / "security", HEAD)
    write_files(folder, {path: text.replace("%s", hooks(mark)) for path, text in files.items()})
    error = await refuse(adapt, model, folder, mark)
    assert "settings of a CLI" in str(error)
    assert "install_skills=False" in str(error.hint)


async def test_other_files_are_installed_except_hidden_folders(
    adapt: Adapt, model: FakeModel, tmp_path: Path
) -> None:
    folder = write_skill_md(tmp_path / "security", HEAD, "CELADON\n")
    kept: dict[str, str | bytes] = {
        ".env.example": "KEY=\n",
        ".gitignore": "x",
        "node_modules/.bin/tool": "x",
    }
    write_files(folder, {**kept, ".git/HEAD": "x", ".github/workflows/a.yml": "x", ".next/a": "x"})
    found: list[str] = []

    def look(event: SkillsInstalled) -> None:
        there = Path(event.skills_dir, "security")
        files = (path for path in there.rglob("*") if path.is_file())
        found.extend(str(path.relative_to(there)) for path in files)

    heard = Heard()
    heard.session.bus.subscribe(SkillsInstalled, look)
    model.script = [Use("Skill", skill="security"), Say("ok")]
    await adapt().evaluate_async(a_prompt(SkillRef(folder)), session=heard.session)
    assert sorted(found) == sorted([*kept, "SKILL.md"])
    assert "CELADON" in model.turns[1].text
