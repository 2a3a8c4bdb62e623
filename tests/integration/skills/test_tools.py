"""Skill tools over MCP: list, open and run; changed packs are refused, secrets are masked."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from fastmcp import FastMCP
from structlog.testing import capture_logs

from butlers.config.settings import Settings
from butlers.domain.clock import uuid7
from butlers.domain.errors import (
    NotAllowed,
    NotFound,
    PeerFailed,
    SkillChanged,
    SkillNotFound,
    SkillScriptNotFound,
    SkillScriptTimeout,
)
from butlers.domain.session import SessionRequest
from butlers.wire.client import McpClient
from support.in_process import MakeButler
from support.mcp_server import served
from support.tester_folder import ECHO_PY, ENVIRONMENT_PY, LOCAL_SERVER, SERVER_PY
from support.waiting import until

SECRET = "twitter-key-4711-abcdef"
SKILL_TOOLS = {"skill_list", "skill_open", "skill_run"}


def living(mark: bytes) -> list[str]:
    """Processes that have this variable in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in entry.read_bytes().split(b"\0"):
                found.append(entry.parent.name)
    return found


async def offered(client: McpClient) -> set[str]:
    return {tool["name"] for tool in await client.list_tools()}


async def test_a_butler_without_skills_offers_no_tools_for_them(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler()
    await tester.start()
    async with tester.session() as session:
        assert not {name for name in await offered(session) if name.startswith("skill")}


@pytest.mark.scenario("S001-17", "S000-14")
async def test_skills_are_found_opened_and_followed_through_tools(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler()
    tester.own(
        "inbox-triage",
        "Sorts what came in.",
        "\n# Steps\n\n1. Call `write` with the text before you answer.\n",
    )
    await tester.start()

    async def follow(butler: McpClient) -> str:
        (opening,) = [one for one in await butler.list_tools() if one["name"] == "skill_open"]
        assert "- inbox-triage: Sorts what came in." in opening["description"]
        (listed,) = (await butler.call("skill_list"))["skills"]
        opened = await butler.call("skill_open", {"skill": listed["name"]})
        assert "Call `write` with the text before you answer." in opened["instructions"]
        await butler.call("write", {"text": "sorted"})
        return "followed"

    for source in ("trigger", "route", "schedule:daily"):
        _asked, result = await tester.think(follow, source)
        assert result.text == "followed"
    assert await tester.count("entries") == 3


@pytest.mark.scenario("S001-53")
async def test_session_pays_only_for_opened_skills(make_pack_butler: MakeButler) -> None:
    tester = make_pack_butler()
    for name in ("morning-briefing", "log-weight"):
        tester.own(name, f"About {name}.", f"\nThe long workflow of {name}.\n")
    await tester.start()
    (tester.directory / "CLAUDE.md").write_text("@AGENTS.md")
    (tester.directory / "AGENTS.md").write_text("General words.")
    told: list[str] = []

    async def need_one(butler: McpClient) -> str:
        told.append(json.dumps(await butler.list_tools()))
        told.append(json.dumps(await butler.call("skill_open", {"skill": "log-weight"})))
        return "done"

    asked, _result = await tester.think(need_one)
    assert asked.system_prompt == "General words."
    given = asked.system_prompt + told[0]
    assert "The long workflow" not in given
    assert "The long workflow of log-weight." in told[1]
    assert "morning-briefing" not in told[1]


async def test_only_files_inside_the_skill_are_read(make_pack_butler: MakeButler) -> None:
    tester = make_pack_butler()
    folder = tester.own("guide")
    (folder / "references").mkdir()
    (folder / "references" / "more.md").write_text("More.")
    (folder / "away.md").symlink_to(tester.directory / "butler.toml")
    await tester.start()
    async with tester.session() as session:
        opened = await session.call("skill_open", {"skill": "guide"})
        assert "references/more.md" in opened["files"]
        asked = {"skill": "guide", "file": "references/more.md"}
        assert (await session.call("skill_open", asked))["text"] == "More."
        for path in ("../../butler.toml", "/etc/passwd", "away.md", "nowhere.md"):
            with pytest.raises((SkillNotFound, NotFound, Exception), match=r"no file|not a path"):
                await session.call("skill_open", {"skill": "guide", "file": path})


@pytest.mark.scenario("S003-22", "S003-35", "S003-36")
async def test_a_script_sees_the_secrets_that_it_declares_and_they_come_back_masked(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler("social@1.0.0")
    folder = tester.register(
        "social",
        {"scripts/environment.py": ENVIRONMENT_PY},
        scripts=["scripts/environment.py"],
        envVars=["TWITTER_KEY", "UNSET_KEY"],
    )
    await tester.start()
    await tester.secret("TWITTER_KEY", SECRET)
    await tester.secret("ANOTHER_KEY", "another-secret-value")

    async def run(butler: McpClient) -> str:
        answer = await butler.call("skill_run", {"skill": "social", "script": "environment"})
        return json.dumps(answer)

    _asked, result = await tester.think(run, "route")
    answer = json.loads(result.text)
    assert answer["success"]
    always = {"PATH", "LANG", "HOME", "TMPDIR", "BUTLERS_ACCESS", "BUTLERS_OUTPUT"}
    always |= {"PWD", "TRACEPARENT", "LC_CTYPE"}
    shell = {"OLDPWD", "SHLVL", "_"}  # set by the sandbox's shell
    assert set(answer["result"]) - always - shell == {"TWITTER_KEY"}
    assert answer["result"]["TWITTER_KEY"] == "[redacted]"
    assert answer["result"]["BUTLERS_ACCESS"] == "sealed"
    assert answer["missing"] == ["UNSET_KEY"]
    everything = "".join(path.read_text() for path in folder.rglob("*") if path.is_file())
    assert SECRET not in everything, "secrets live apart from manifests"
    rows = await tester.rows("SELECT * FROM tool_calls WHERE tool = 'skill_run'")
    assert len(rows) == 1
    assert SECRET not in str(rows)


async def test_a_missing_secret_is_a_warning_and_shows_in_the_status(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler("social@1.0.0")
    tester.register("social", {}, envVars=["TWITTER_KEY"])
    with capture_logs() as log:
        await tester.start()
    warnings = [line for line in log if line["event"] == "skill has no value for a variable"]
    assert [(line["log_level"], line["missing"]) for line in warnings] == [
        ("warning", ["TWITTER_KEY"])
    ]
    status = await tester.status()
    assert status["health"] == "healthy"
    assert status["skills"] == [
        {"skill": "social@1.0.0", "state": "loaded", "missing": ["TWITTER_KEY"]}
    ]


async def test_environment_variables_need_a_declaration_of_the_butler(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler("social@1.0.0", extra='[butler.env]\noptional = ["DECLARED"]\n')
    scripts = {"scripts/environment.py": ENVIRONMENT_PY}
    tester.register("social", scripts, scripts=list(scripts), envVars=["DECLARED", "OF_THE_DAEMON"])
    environ = {"DECLARED": "declared-value", "OF_THE_DAEMON": "not-yours", "PATH": "/usr/bin:/bin"}
    settings = Settings(tester.home, environ=MappingProxyType(environ))
    await tester.make(settings=settings).start()
    async with tester.session() as session:
        answer = await session.call("skill_run", {"skill": "social", "script": "environment"})
    assert "DECLARED" in answer["result"]
    assert answer["missing"] == ["OF_THE_DAEMON"]


async def test_arguments_limits_and_failures_of_a_script(make_pack_butler: MakeButler) -> None:
    tester = make_pack_butler("tools@1.0.0")
    files: dict[str, str | bytes] = {
        "scripts/echo.py": ECHO_PY,
        "scripts/words.sh": '#!/bin/sh\n# Say the words.\necho "$@"\n',
        "scripts/fail.sh": "#!/bin/sh\necho broken >&2\nexit 4\n",
        "scripts/hang.sh": "#!/bin/sh\nsleep 600\n",
    }
    tester.register("tools", files, scripts=list(files))
    await tester.start()
    async with tester.session() as session:

        async def run(script: str, **more: Any) -> Any:
            asked = {"skill": "tools", "script": script, **more}
            return await session.call("skill_run", asked, timeout_s=60)

        assert (await run("echo", arguments={"a": 1}))["result"] == {"said": {"a": 1}}
        assert (await run("words", arguments=["--date", "today"]))["result"] == "--date today"
        failed = await run("fail")
        assert (failed["success"], failed["error"], failed["exitCode"]) == (False, "broken", 4)
        with pytest.raises(SkillScriptTimeout):
            await run("hang", timeout_s=0.3)
        with pytest.raises(SkillScriptNotFound) as refused:
            await run("other")
        assert refused.value.hint == f"available: {', '.join(files)}"
    async with tester.owner() as owner:
        answer = await owner.call("skill_run", {"skill": "tools", "script": "echo"})
        assert answer["result"] == {"said": {}}


async def test_a_script_ends_with_the_session_that_runs_it(make_pack_butler: MakeButler) -> None:
    tester = make_pack_butler("tools@1.0.0")
    hang = {
        "scripts/hang.sh": "#!/bin/sh\ncd output\npwd > started.tmp\nmv started.tmp started\nsleep 600\n"
    }
    tester.register("tools", hang, scripts=list(hang))
    await tester.start()
    started = tester.directory / "output" / "started"
    calls: list[asyncio.Task[Any]] = []

    async def leave(butler: McpClient) -> str:
        run = {"skill": "tools", "script": "hang", "timeout_s": 300}
        calls.append(asyncio.create_task(butler.call("skill_run", run, timeout_s=60)))
        await until("the script to run", lambda: started.exists() or None)
        assert living(f"BUTLERS_OUTPUT={started.read_text().strip()}".encode())
        return "left"

    _asked, result = await tester.think(leave)
    assert result.text == "left"
    mark = f"BUTLERS_OUTPUT={started.read_text().strip()}".encode()
    await until("the script to be gone", lambda: not living(mark) or None)
    await asyncio.gather(*calls, return_exceptions=True)


@pytest.mark.scenario("S003-11", "S003-23")
async def test_a_packs_server_runs_while_a_session_does_and_its_tools_are_the_butlers(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler("social-media@1.0.0")
    tester.register(
        "social-media",
        {"mcp/server.py": SERVER_PY},
        mcpServers=[LOCAL_SERVER],
        envVars=["TWITTER_KEY"],
    )
    await tester.start()
    await tester.secret("TWITTER_KEY", SECRET)
    (server,) = tester.butler.skills.servers
    assert not server.is_running, "nobody needs it yet"
    told: list[dict[str, Any]] = []

    async def post(butler: McpClient) -> str:
        assert "social_media_post_tweet" in await offered(butler)
        for words in ("first", "second"):
            asked = {"content": words}
            result = await butler._request(
                "tools/call",
                {"name": "social_media_post_tweet", "arguments": asked},
                "social_media_post_tweet",
                60,
            )
            told.append(json.loads(result["content"][0]["text"]))
        assert server.is_running
        return "posted"

    _asked, result = await tester.think(post, "route")
    assert result.text == "posted"
    assert [one["said"] for one in told] == ["first", "second"]
    assert told[0]["pid"] == told[1]["pid"], "one server for the whole session"
    assert told[0]["environment"]["TWITTER_KEY"] == "[redacted]"
    assert not {"USER", "LOGNAME", "SHELL", "TERM"} & set(told[0]["environment"])
    assert not server.is_running
    mark = f"HOME={told[0]['environment']['HOME']}".encode()  # no other process has it
    await until("its process to be gone", lambda: not living(mark) or None)
    rows = await tester.rows("SELECT arguments FROM tool_calls WHERE ok ORDER BY id")
    assert {"content": "first"} in [json.loads(row["arguments"]) for row in rows]


@pytest.mark.scenario("S003-23")
async def test_two_sessions_share_a_server_and_the_last_one_ends_it(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler(
        "social@1.0.0", extra="[butler.runtime]\nmax_concurrent_sessions = 2\n"
    )
    tester.register("social", {"mcp/server.py": SERVER_PY}, mcpServers=[LOCAL_SERVER])
    await tester.start()
    (server,) = tester.butler.skills.servers
    go = asyncio.Event()

    async def wait(butler: McpClient) -> str:
        await butler.list_tools()
        await go.wait()
        return "done"

    first = asyncio.create_task(tester.think(wait))
    await until("the server to run", lambda: server.is_running or None)
    _asked, result = await tester.think()
    assert result.text == "thought"
    assert server.is_running, "the other one needs it still"
    go.set()
    await first
    assert not server.is_running


async def test_a_reflex_starts_no_server(make_pack_butler: MakeButler) -> None:
    tester = make_pack_butler("social@1.0.0")
    tester.register("social", {"mcp/server.py": SERVER_PY}, mcpServers=[LOCAL_SERVER])
    await tester.start()
    (server,) = tester.butler.skills.servers
    session = SessionRequest(uuid7(), "wait for it", "route")
    running = asyncio.create_task(tester.butler.spawner.run(session))
    await tester.until_running("it")
    assert not server.is_running
    tester.open_gate()
    assert (await running).text == "Waited for it."


async def test_failing_server_is_reported(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler("social@1.0.0", "broken@1.0.0")
    tester.register("social", {"mcp/server.py": SERVER_PY}, mcpServers=[LOCAL_SERVER])
    broken = {
        "mcp/server.py": f"import sys\nprint('x' * {2**20}, file=sys.stderr)\nsys.exit('no such module')\n"
    }
    tester.register("broken", broken, mcpServers=[{**LOCAL_SERVER, "name": "broken-mcp"}])
    with capture_logs() as log:
        await tester.start()
    (told,) = [line["error"] for line in log if line["event"] == "pack server failed"]
    assert told.startswith("the server broken/broken-mcp could not be started")
    assert "no such module" in told
    status = await tester.status()
    assert status["health"] == "degraded"
    assert {one["skill"]: one["state"] for one in status["skills"]} == {
        "social@1.0.0": "loaded",
        "broken@1.0.0": "failed",
    }
    async with tester.session() as session:

        async def post(content: str) -> Any:
            return await session.call("social_post_tweet", {"content": content}, timeout_s=60)

        with pytest.raises(PeerFailed, match="no such network"):
            await post("fail")
        with pytest.raises(PeerFailed):
            await post("crash")
        await post("again")


@pytest.mark.scenario("S003-12")
async def test_a_remote_server_is_configured_by_its_address_alone(
    make_pack_butler: MakeButler,
) -> None:
    remote = FastMCP("far")

    @remote.tool
    def look_up(word: str) -> str:
        """Look a word up."""
        return f"{word} means AMARANTH"

    async with served(remote) as url:
        tester = make_pack_butler("far@1.0.0")
        servers = [{"name": "external-api", "type": "remote", "url": url}]
        tester.register("far", {}, mcpServers=servers)
        await tester.start()
        async with tester.session() as session:
            assert "far_look_up" in await offered(session)
            answer = await session.call("far_look_up", {"word": "it"}, timeout_s=60)
        assert answer == {"result": "it means AMARANTH"}


async def test_changed_pack_is_refused_everywhere(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler("social@1.0.0")
    files: dict[str, str | bytes] = {
        "mcp/server.py": SERVER_PY,
        "scripts/echo.py": ECHO_PY,
        "context/a.md": "How.",
    }
    tester.register(
        "social",
        files,
        mcpServers=[LOCAL_SERVER],
        scripts=["scripts/echo.py"],
        context=["context/a.md"],
    )
    await tester.start()
    calls = [
        ("skill_run", {"skill": "social", "script": "echo"}),
        ("skill_open", {"skill": "social"}),
        ("social_post_tweet", {"content": "x"}),
    ]
    async with tester.session() as session:
        for tool, arguments in calls:
            await session.call(tool, arguments, timeout_s=60)
        tester.tamper("social", "context/a.md")
        for tool, arguments in calls:
            with pytest.raises(SkillChanged, match="has changed since it was registered"):
                await session.call(tool, arguments, timeout_s=60)


async def test_session_with_a_tool_list_starts_no_server(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler("social@1.0.0")
    tester.register("social", {"mcp/server.py": SERVER_PY}, mcpServers=[LOCAL_SERVER])
    await tester.start()
    (server,) = tester.butler.skills.servers
    running: list[bool] = []

    async def look(butler: McpClient) -> str:
        assert await offered(butler) == {"write"}
        running.append(server.is_running)
        with pytest.raises(NotAllowed):
            await butler.call("skill_list")
        return "looked"

    await tester.think(look, "route", tools=frozenset({"write"}))
    assert running == [False]
