"""Codex offers the butler's tools directly, and no others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from butlers.domain.session import Access, Outcome
from butlers.runtimes.base import Grants
from butlers.runtimes.codex.command import bundled
from support.cli_session import SYSTEM_PROMPT, CliSession
from support.clis import CODEX
from support.fake_model import Call, Say, Use

pytestmark = pytest.mark.parametrize("cli", [CODEX], indirect=True, ids=["codex"])


@pytest.mark.parametrize("name", ["gpt-5.5", "gpt-6-luna", "no-such-model", None])
async def test_catalog_gives_every_model_plain_tools(
    cli_session: CliSession, name: str | None
) -> None:
    """Some it would let search for them, some write JavaScript for them; one it does not know."""
    cli_session.cli = replace(cli_session.cli, model=name)  # type: ignore[arg-type]
    cli_session.model.script = [Use("quick", text="a"), Say("Done.")]
    result = await cli_session.invoke()
    assert (result.outcome, result.text) == (Outcome.OK, "Done.")
    first, _ = cli_session.model.turns  # one more would be a search
    assert {one for one in first.offered if not one.startswith(CODEX.prefix)} == CODEX.beside
    assert first.system == SYSTEM_PROMPT
    assert first.user == "Do it."
    assert result.model == first.model


async def test_codex_accepts_every_key_of_its_configuration(cli_session: CliSession) -> None:
    for access in (Access.SEALED, Access.FULL):
        cli_session.grants = Grants(access)
        cli_session.args = ("--strict-config",)
        assert (await cli_session.invoke()).outcome is Outcome.OK


@pytest.mark.parametrize("name", ["shell", "local_shell", "apply_patch", "view_image", "exec"])
async def test_tool_that_is_not_offered_cannot_be_called(
    cli_session: CliSession, name: str
) -> None:
    arguments = {"command": ["touch", "made"], "cmd": "touch made", "path": "butler.toml"}
    cli_session.model.script = [Use(Call(name, arguments, anyway=True)), Say("I could not.")]
    result = await cli_session.invoke()
    assert (result.outcome, result.denials) == (Outcome.DENIED, (name,))
    assert not (cli_session.cwd / "made").exists()


async def test_a_shell_of_a_full_session_does_not_see_the_token(cli_session: CliSession) -> None:
    cli_session.grants = Grants(Access.FULL)
    cli_session.model.script = [Use(cli_session.cli.run("env")), Say("Done.")]
    await cli_session.invoke()
    (seen,) = cli_session.model.turns[-1].results
    assert "HOME=" in seen
    assert "bs." not in seen


async def test_bundled_catalog_is_read(executable: Path) -> None:
    catalog = await bundled(executable)
    assert catalog.default == "gpt-6.1-sol"
    assert len(catalog.as_json(sealed=True)) < 100_000


async def test_skills_next_to_the_folder_are_not_listed(cli_session: CliSession) -> None:
    """A sealed session could not read them; it has the butler's own tools for that."""
    for folder in (".agents/skills/errand", ".codex/skills/errand"):
        file = cli_session.cwd / folder / "SKILL.md"
        file.parent.mkdir(parents=True)
        file.write_text("---\nname: errand\ndescription: PERIWINKLE\n---\nDo it.\n")
    assert (await cli_session.invoke()).outcome is Outcome.OK
    (turn,) = cli_session.model.turns
    assert "PERIWINKLE" not in turn.text
