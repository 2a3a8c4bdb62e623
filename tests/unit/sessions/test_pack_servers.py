"""MCP servers of packs that cannot be reached."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from butlers.sessions.pack_servers import PackServer
from butlers.skills.scripts.runner import ScriptRunner
from butlers.skills.skill import Pack, PackMcpServer, ServerKind, SkillSpec
from butlers.skills.skill_set import ButlerSkill, SkillOrigin


async def _no_variables(_entry: ButlerSkill) -> dict[str, str]:
    return {}


async def test_unreachable_remote_server_is_one_line_in_the_log(tmp_path: Path) -> None:
    server = PackMcpServer("api", ServerKind.REMOTE, url="http://127.0.0.1:1/mcp")
    skill = SkillSpec("far", "Looks up.", mcp_servers=(server,))
    entry = ButlerSkill(Pack(tmp_path, skill), SkillOrigin.PACK)
    far = PackServer(entry, server, ScriptRunner(tmp_path), _no_variables)
    with capture_logs() as log:
        await far.discover()
        await far.close()
    (line,) = [line for line in log if line["log_level"] == "error"]
    assert line["error"].startswith("the server far/api could not be started")
    assert not line["exc_info"]
    assert far.tools == ()
