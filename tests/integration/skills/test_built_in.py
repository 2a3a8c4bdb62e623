"""mail-tools and cron-tools: scripts that call the butler with the rights of their session."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from butlers.domain.clock import uuid7
from butlers.domain.errors import NotAllowed, SkillNotFound
from butlers.domain.message import RouteDecision, RouteRequest
from butlers.domain.session import SessionRequest
from butlers.queue.pause import begin_pause
from butlers.sessions.routes import accept_route
from butlers.skills.registry.built_in import register_built_in
from butlers.wire.client import McpClient
from support.in_process import InProcessButler, MakeButler
from support.messages import envelope, request_context

MAIL = ["scripts/list-inbox.py", "scripts/search-history.py", "scripts/mail-stats.py"]
CRON = [f"scripts/{verb}-cron-job{'s' if verb == 'list' else ''}.py" for verb in (
    "list", "create", "update", "delete", "toggle"
)]  # fmt: skip


async def started(make_pack_butler: MakeButler, *packs: str) -> InProcessButler:
    tester = make_pack_butler(*packs)
    list(register_built_in(tester.registry))
    await tester.start()
    return tester


async def run(client: McpClient, skill: str, script: str, **arguments: Any) -> Any:
    asked = {"skill": skill, "script": script, "arguments": arguments}
    answer = await client.call("skill_run", asked, timeout_s=60)
    return answer["result"] if answer["success"] else answer["error"]


async def test_built_in_packs_are_off_by_default(
    make_pack_butler: MakeButler,
) -> None:
    tester = await started(make_pack_butler)
    tester.own("any")
    async with tester.owner() as owner:
        names = {tool["name"] for tool in await owner.list_tools()}
    assert not {name for name in names if name.startswith("mail_")}


@pytest.mark.scenario("S003-33")
async def test_mail_tools_list_search_and_count(make_pack_butler: MakeButler) -> None:
    tester = await started(make_pack_butler, "mail-tools@1.0.0")
    skill = tester.butler.skills.skill_set.find("mail-tools").skill
    assert (list(skill.scripts), skill.owner) == (MAIL, "built-in")
    spawner = tester.butler.spawner
    for text in ("keep the spare key", "keep 100% of it"):
        await spawner.run(SessionRequest(uuid7(), text, "route"))
    async with tester.butler.database.transaction() as connection:
        await begin_pause(connection, None)
        request = replace(request_context(), request_id=uuid7())
        decision = RouteDecision("tester", "fallback", "nobody else")
        route = RouteRequest(request, "tester", "milk, please", decision)
        await accept_route(connection, route)
    async with tester.session() as session:
        listed = (await run(session, "mail-tools", "list-inbox"))["messages"]
        assert [(one["text"], one["sender"]) for one in listed] == [("milk, please", "owner")]
        found = (await run(session, "mail-tools", "search-history", query="KEY spare"))["found"]
        assert [one["prompt"] for one in found] == ["keep the spare key"]
        assert "Kept: the spare key" in found[0]["output"]
        for query, number in (("100%", 1), ("_", 0), ("keep", 2), ("nothing like it", 0)):
            answer = await run(session, "mail-tools", "search-history", query=query)
            assert len(answer["found"]) == number, query
        assert "query must contain the words" in await run(session, "mail-tools", "search-history")
        stats = await run(session, "mail-tools", "mail-stats", days=1)
    assert sum(stats["waiting"].values()) == 1
    assert stats["dealt_with"] == {"ok": 2}


async def test_switchboard_sees_the_mail_of_all_butlers(make_butler: MakeButler) -> None:
    tester = make_butler("switchboard")
    with (tester.directory / "butler.toml").open("a") as config:
        config.write('\n[skills]\npacks = ["mail-tools@1.0.0"]\n')
    list(register_built_in(tester.registry))
    await tester.start()
    async with tester.owner() as owner, tester.session() as session:
        await owner.call("ingest", envelope("a word about periwinkles"))
        found = (await run(session, "mail-tools", "search-history", query="Periwinkles"))["found"]
        assert [(one["text"], one["channel"]) for one in found] == [
            ("a word about periwinkles", "console")
        ]
        assert (await run(session, "mail-tools", "search-history", query="none"))["found"] == []
        listed = (await run(session, "mail-tools", "list-inbox"))["messages"]
        assert {one["text"] for one in listed} <= {"a word about periwinkles"}
        stats = await run(session, "mail-tools", "mail-stats")
        assert set(stats) == {"days", "waiting", "oldest_waiting", "dealt_with"}


@pytest.mark.scenario("S003-34")
async def test_cron_tools_list_create_update_delete_and_toggle(
    make_pack_butler: MakeButler,
) -> None:
    tester = await started(make_pack_butler, "cron-tools@1.0.0")
    skill = tester.butler.skills.skill_set.find("cron-tools").skill
    assert (list(skill.scripts), skill.owner) == (CRON, "built-in")
    async with tester.session() as session:

        async def cron(script: str, **arguments: Any) -> Any:
            return await run(session, "cron-tools", script, **arguments)

        made = await cron("create-cron-job", name="tea", cron="0 17 * * *", prompt="make tea")
        assert made["next_run_local"].endswith("17:00")
        again = await cron("create-cron-job", name="tea", cron="0 17 * * *", prompt="make tea")
        assert isinstance(again, str), "a second of that name is refused"
        changed = await cron("update-cron-job", job="tea", cron="30 16 * * *")
        assert (changed["id"], changed["next_run_local"][-5:]) == (made["id"], "16:30")
        assert (await cron("toggle-cron-job", job=made["id"]))["enabled"] is False
        (listed,) = (await cron("list-cron-jobs"))["schedules"]
        assert (listed["name"], listed["enabled"]) == ("tea", False)
        assert listed["created_by"] == "session:tester"
        assert (await cron("toggle-cron-job", job="tea"))["enabled"] is True
        assert (await cron("delete-cron-job", job="tea"))["status"] == "deleted"
        assert "there is no cron job 'tea'" in await cron("delete-cron-job", job="tea")
        assert (await cron("list-cron-jobs"))["schedules"] == []


async def test_script_token_is_limited_to_its_packs_tools_and_its_run(
    make_pack_butler: MakeButler,
) -> None:
    tester = await started(make_pack_butler, "mail-tools@1.0.0", "cron-tools@1.0.0")
    async with tester.session() as session:
        names = {tool["name"] for tool in await session.list_tools()}
        assert not {name for name in names if name.startswith("mail_")}, "sessions run the scripts"
        with pytest.raises(NotAllowed):
            await session.call("mail_inbox")
    guard = tester.butler.guard
    asked = SessionRequest(uuid7(), "x", "test")
    with guard.admit(asked) as token:
        live = guard.find(token)
        assert live is not None
        with guard.lend(live.caller, None, frozenset({"mail_inbox"}), 60) as lent:
            async with tester.client(lent) as script:
                assert {tool["name"] for tool in await script.list_tools()} == {"mail_inbox"}
                with pytest.raises(NotAllowed):
                    await script.call("mail_search", {"query": "x"})
        assert guard.find(lent) is None


async def test_a_run_repeated_after_a_crash_makes_one_cron_job(
    make_pack_butler: MakeButler,
) -> None:
    tester = await started(make_pack_butler, "cron-tools@1.0.0")
    request = request_context()
    made = []
    for _run in range(2):
        async with tester.session(request=request) as session:
            made.append(
                await run(
                    session,
                    "cron-tools",
                    "create-cron-job",
                    name="tea",
                    cron="0 17 * * *",
                    prompt="make tea",
                )
            )
    assert made[0] == made[1], "the journal answers the second"
    assert await tester.count("scheduled_tasks") == 1


async def test_pack_of_another_owner_gets_no_token(make_pack_butler: MakeButler) -> None:
    tester = make_pack_butler("mail-tools@1.0.0")
    code = (
        "import json, os\nprint(json.dumps([name for name in os.environ if 'BUTLERS' in name]))\n"
    )
    tester.register(
        "mail-tools", {"scripts/list-inbox.py": code}, scripts=["scripts/list-inbox.py"]
    )
    await tester.start()
    async with tester.session() as session:
        assert await run(session, "mail-tools", "list-inbox") == [
            "BUTLERS_ACCESS",
            "BUTLERS_OUTPUT",
        ]


async def test_owner_runs_built_in_scripts_and_unknown_ones_are_not_found(
    make_pack_butler: MakeButler,
) -> None:
    tester = await started(make_pack_butler, "mail-tools@1.0.0")
    async with tester.owner() as owner:
        assert await run(owner, "mail-tools", "list-inbox") == {"messages": []}
        with pytest.raises(SkillNotFound):
            await run(owner, "cron-tools", "list-cron-jobs")
