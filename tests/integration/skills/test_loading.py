"""Packs of a butler's configuration: resolved, verified, mounted and in its prompts."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from butlers.domain.errors import SkillNotFound
from butlers.skills.registry.resolver import LOCK_FILE, resolve, write_lock
from butlers.wire.client import McpClient
from support.in_process import MakeButler
from support.tester_folder import ECHO_PY, LOCAL_SERVER, SERVER_PY

SOUL = "You are the tester. You say AMARANTH."
POST_TS = "// scripts/post-twitter.ts\n// Post a tweet to Twitter\nconsole.log('{}')\n"


@pytest.mark.scenario("S003-06", "S003-24", "S003-25")
async def test_the_prompt_has_soul_skills_scripts_and_mcp_tools_in_this_order(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler("social-media@1.0.0", "basic@1.0.0")
    tester.register(
        "social-media",
        {
            "context/zz-instructions.md": "# First\nHow to post.\n",
            "context/aa-examples.md": "# Second\nAn example.\n",
            "scripts/post-twitter.ts": POST_TS,
            "mcp/server.py": SERVER_PY,
        },
        name="Social Media APIs",
        context=["context/zz-instructions.md", "context/aa-examples.md"],
        scripts=["scripts/post-twitter.ts"],
        mcpServers=[LOCAL_SERVER],
    )
    tester.register(
        "basic",
        {"context/instructions.md": "How to read.", "scripts/echo.py": ECHO_PY},
        name="Basic Tools",
        context=["context/instructions.md"],
        scripts=["scripts/echo.py"],
    )
    await tester.start()
    (tester.directory / "CLAUDE.md").write_text(SOUL)
    asked, _result = await tester.think()
    assert asked.system_prompt == (
        f"# Soul\n\n{SOUL}\n\n---\n\n# Available Skills\n\n"
        "## Social Media APIs (v1.0.0)\n\n# First\nHow to post.\n\n# Second\nAn example.\n\n"
        "## Basic Tools (v1.0.0)\n\nHow to read.\n\n---\n\n# Available Tools\n\n"
        "- post-twitter.ts: Post a tweet to Twitter (`skill_run`, skill social-media)\n"
        "- echo.py: Say it back. (`skill_run`, skill basic)\n\n# MCP Tools\n\n"
        "- social-mcp: social_media_post_tweet"
    )


async def test_prompt_without_packs_is_exactly_the_soul(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler()
    tester.own("morning-briefing")
    await tester.start()
    (tester.directory / "CLAUDE.md").write_text(SOUL)
    asked, _result = await tester.think()
    assert asked.system_prompt == SOUL


async def test_module_memory_follows_the_packs(
    make_pack_butler: MakeButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    tester = make_pack_butler("basic@1.0.0")
    tester.register("basic", {"context/a.md": "How."}, context=["context/a.md"])
    await tester.start()
    (module,) = tester.butler.modules

    async def remember(_session: object) -> str:
        return "# Memory"

    monkeypatch.setattr(module, "session_context", remember)
    asked, _result = await tester.think()
    assert asked.system_prompt.endswith("## Basic (v1.0.0)\n\nHow.\n\n# Memory")


async def test_summary_disclosure_shows_only_the_description(make_pack_butler: MakeButler) -> None:
    tester = make_pack_butler("basic@1.0.0", skills='disclosure = "summary"')
    tester.register(
        "basic", {"context/a.md": "PERIWINKLE"}, context=["context/a.md"], description="Reads."
    )
    await tester.start()
    asked, _result = await tester.think()
    assert "PERIWINKLE" not in asked.system_prompt
    assert (
        "## Basic (v1.0.0)\n\nReads.\n\n---\n"
        '[This skill is summarized. Call `skill_open` with key "skills.basic"\n'
        "to view full workflow.]" in asked.system_prompt
    )
    async with tester.owner() as owner:
        opened = await owner.call("skill_open", {"skill": "skills.basic"})
    assert "PERIWINKLE" in opened["instructions"]


async def test_nonempty_soul_md_is_the_soul(make_pack_butler: MakeButler) -> None:
    tester = make_pack_butler()
    await tester.start()
    (tester.directory / "CLAUDE.md").write_text("of the file")
    (tester.directory / "soul.md").write_text("of the soul")
    first, _ = await tester.think()
    (tester.directory / "soul.md").write_text("<!-- nothing -->")
    second, _ = await tester.think()
    assert (first.system_prompt, second.system_prompt) == ("of the soul", "of the file")


@pytest.mark.scenario("S003-21")
async def test_skills_are_mounted_where_the_clis_look(make_pack_butler: MakeButler) -> None:
    tester = make_pack_butler("social-media@^1")
    tester.register("social-media", {"scripts/echo.py": ECHO_PY}, scripts=["scripts/echo.py"])
    own = tester.own("morning-briefing")
    (own / "run.py").write_text("print('hello')")
    await tester.start()
    seen: dict[str, bool] = {}

    async def look(butler: McpClient) -> str:
        await butler.list_tools()
        home = tester.butler.spawner.model.asked[0].terms.workspace.home  # type: ignore[union-attr]
        for folder in (".claude/skills", ".agents/skills"):
            script = home / folder / "social-media" / "scripts" / "echo.py"
            seen[f"{folder} pack"] = (
                script.read_text() == ECHO_PY and script.stat().st_mode & 0o111 > 0
            )
            seen[f"{folder} own"] = (home / folder / "morning-briefing" / "run.py").is_file()
        return "looked"

    asked, result = await tester.think(look)
    assert result.text == "looked"
    assert list(seen.values()) == [True] * 4
    assert asked.terms.workspace.home / ".claude/skills" in asked.terms.grants.readable
    assert not asked.terms.workspace.private.exists(), "gone with its session"


@pytest.mark.scenario("S001-19")
async def test_skills_of_a_butlers_folder_are_private_to_it(
    make_pack_butler: MakeButler, make_butler: MakeButler
) -> None:
    tester = make_pack_butler()
    folder = tester.own("morning-briefing")
    (folder / "run.py").write_text("print('briefed')")
    general = make_butler("general")
    await tester.start()
    await general.start()
    assert (tester.directory / "skills" / "morning-briefing" / "SKILL.md").is_file()
    listed = {}
    for one in (tester, general):
        async with one.session() as session:
            found = (await session.call("skill_list"))["skills"]
            listed[one.directory.name] = {skill["name"]: skill["scripts"] for skill in found}
    assert listed["tester"] == {"morning-briefing": {"run.py": ""}}
    assert "notes" in listed["general"]
    assert "morning-briefing" not in listed["general"]
    run = {"skill": "morning-briefing", "script": "run"}
    async with tester.session() as session:
        assert (await session.call("skill_run", run))["result"] == "briefed"
    async with general.session() as session:
        with pytest.raises(SkillNotFound):
            await session.call("skill_run", run)


async def test_sealed_session_has_no_skill_files(make_pack_butler: MakeButler) -> None:
    tester = make_pack_butler("social-media")
    tester.register("social-media")
    await tester.start()
    mounted: list[bool] = []

    async def look(butler: McpClient) -> str:
        await butler.list_tools()
        home = tester.butler.spawner.model.asked[0].terms.workspace.home  # type: ignore[union-attr]
        mounted.append((home / ".claude").exists())
        return "looked"

    await tester.think(look, source="route")
    assert mounted == [False]


@pytest.mark.scenario("S003-41")
async def test_a_new_version_is_used_after_the_configuration_names_it_and_a_restart(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler("report@1.0.0")
    tester.register("report", {"context/a.md": "The first."}, context=["context/a.md"])
    await tester.start()
    new = {"context/a.md": "The second."}
    tester.register("report", new, context=["context/a.md"], version="1.1.0")
    before, _ = await tester.think()
    await tester.butler.stop()
    file = tester.directory / "butler.toml"
    file.write_text(file.read_text().replace("report@1.0.0", "report@1.1.0"))
    await tester.start()
    after, _ = await tester.think()
    assert "## Report (v1.0.0)\n\nThe first." in before.system_prompt
    assert "## Report (v1.1.0)\n\nThe second." in after.system_prompt


async def test_a_lock_keeps_the_version_and_none_takes_the_latest_with_a_warning(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler("report")
    tester.register("report")
    locked = resolve(tester.registry.catalog(), "tester", ["report"])
    write_lock(tester.directory / LOCK_FILE, locked)
    tester.register("report", version="1.1.0")
    with capture_logs() as log:
        await tester.start()
    states = (await tester.status())["skills"]
    assert [state["skill"] for state in states] == ["report@1.0.0"]
    assert any("names no version" in str(line.get("warning")) for line in log)


async def test_failed_pack_is_reported_and_others_work(make_pack_butler: MakeButler) -> None:
    tester = make_pack_butler("good@1.0.0", "gone@2.0.0", "changed@1.0.0", "needs-it@1.0.0")
    for name in ("good", "changed"):
        tester.register(name, {"context/a.md": f"Of {name}."}, context=["context/a.md"])
    tester.register("needs-it", dependencies=["changed@1.0.0"])
    tester.tamper("changed", "context/a.md")
    with capture_logs() as log:
        await tester.start()
    status = await tester.status()
    states = {state["skill"]: state.get("error_code", state["state"]) for state in status["skills"]}
    assert states == {
        "good@1.0.0": "loaded",
        "gone@2.0.0": "skill_not_found",
        "changed@1.0.0": "skill_changed",
        "needs-it@1.0.0": "skill_unresolved",
    }
    assert status["health"] == "degraded"
    assert {line["skill"] for line in log if line["event"] == "skill failed"} == {
        "gone@2.0.0",
        "changed@1.0.0",
        "needs-it@1.0.0",
    }
    asked, _result = await tester.think()
    assert "Of good." in asked.system_prompt
    assert "Of changed." not in asked.system_prompt


async def test_a_broken_registry_fails_the_packs_and_not_the_butler(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler("good@1.0.0")
    tester.registry.file.parent.mkdir()
    tester.registry.file.write_text("{")
    await tester.start()
    (state,) = (await tester.status())["skills"]
    assert (state["skill"], state["error_code"]) == ("good@1.0.0", "skill_registry_broken")


async def test_pack_does_not_hide_the_butlers_own_skill(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler("briefing@1.0.0")
    tester.register("briefing")
    tester.own("briefing", description="Of the folder.")
    await tester.start()
    (state,) = (await tester.status())["skills"]
    assert state["error_code"] == "skill_taken"
    async with tester.session() as session:
        listed = (await session.call("skill_list"))["skills"]
    assert [skill["description"] for skill in listed] == ["Of the folder."]


async def test_a_pack_changed_while_the_butler_runs_leaves_the_prompt(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler("basic@1.0.0")
    tester.register("basic", {"context/a.md": "PERIWINKLE"}, context=["context/a.md"])
    await tester.start()
    before, _ = await tester.think()
    tester.tamper("basic", "context/a.md")
    after, _ = await tester.think()
    assert "PERIWINKLE" in before.system_prompt
    assert "PERIWINKLE" not in after.system_prompt
    (state,) = (await tester.status())["skills"]
    assert (state["state"], state["error_code"]) == ("failed", "skill_changed")
