"""The environment of a session's shell: declared variables, but not the session's token.

The CLI itself is given the session's token, in ``MCP_SERVERS`` among other places. A command that the model
runs has no use for it, and prints its environment wherever it likes.
"""

from __future__ import annotations

import re

import pytest

from butlers.domain.session import Access
from support.cli_butler import OpenCliButler
from support.clis import CLAUDE, CODEX, GEMINI, Cli
from support.fake_model import Say, Use
from support.in_process import InProcessButler

SCRIPT = "sh skills/errand/environment.sh"
TOKEN = re.compile(r"\bbs\.[\w-]+")

pytestmark = pytest.mark.parametrize(
    ("cli", "access"),
    [
        (CLAUDE, Access.WORKSPACE),
        (GEMINI, Access.WORKSPACE),
        (CLAUDE, Access.FULL),
        (CODEX, Access.FULL),
        (GEMINI, Access.FULL),
    ],
    indirect=["cli"],
    ids=lambda value: getattr(value, "name", str(value)),
)


def furnish(tester: InProcessButler) -> None:
    folder = tester.directory / "skills" / "errand"
    folder.mkdir(parents=True)
    (folder / "environment.sh").write_text("env\n")


async def test_commands_do_not_see_the_session_token(
    open_cli_butler: OpenCliButler, cli: Cli, access: Access
) -> None:
    async with open_cli_butler(cli, f'access = "{access}"', furnish) as butler:
        butler.model.script = [Use(cli.run(SCRIPT)), Use("quick", text="a"), Say("Seen.")]
        ended = await butler.trigger()
        assert (ended["outcome"], ended["output"]) == ("ok", "Seen.")
        (row,) = await butler.rows("SELECT access, denials FROM sessions")
        assert (row["access"], row["denials"]) == (access, "[]")
    printed = butler.model.turns[-1].results[0]
    assert "PATH=" in printed, "it ran"
    assert butler.model.url in printed, "and has what the butler declares"
    assert not TOKEN.search(printed)
    assert "MCP_SERVERS=" not in printed
    assert "BUTLERS_SESSION_TOKEN" not in printed
