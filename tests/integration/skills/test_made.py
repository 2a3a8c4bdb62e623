"""Skills that sessions make: registered as drafts, announced, approved, assigned to others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from butlers.config.butler import load_butler_config
from butlers.config.roster import known_butlers
from butlers.config.settings import Settings
from butlers.domain.errors import (
    InvalidSkill,
    NotAllowed,
    SkillChanged,
    SkillUnresolved,
    SkillVersionTaken,
)
from butlers.skills.install.draft import SkillDraft
from butlers.skills.registry.butler_packs import assign
from butlers.skills.registry.catalog import SkillState
from butlers.skills.registry.new_skill import NewSkill
from support.in_process import InProcessButler, MakeButler
from support.messages import request_context
from support.skills import write_pack
from support.tester_folder import ECHO_PY, write_tester
from support.waiting import until

SWITCHBOARD = '[butler.switchboard]\nurl = "http://127.0.0.1:9/mcp"\n'
REPORT = {
    "id": "weekly-reports",
    "description": "Writes the report of the week.",
    "instructions": "# Weekly\n\nCollect, then write.",
    "scripts": {"generate-report.py": ECHO_PY},
}


def write_report(custom: Path, **fields: Any) -> Path:
    """Write the skill as a session with a shell would."""
    given = {
        "id": "weekly-reports",
        "name": "Weekly Reports",
        "version": "1.0.0",
        "owner": "tester",
        "context": ["context/instructions.md"],
        "scripts": ["scripts/generate-report.py"],
        **fields,
    }
    files: dict[str, str | bytes] = {
        "context/instructions.md": "Collect, then write.",
        "scripts/generate-report.py": ECHO_PY,
    }
    return write_pack(custom / "weekly-reports", files, **given)


async def until_event(log: list[Any], name: str) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        return next((line for line in log if line["event"] == name), None)

    return await until(name, found)


def custom_of(tester: InProcessButler) -> Path:
    return tester.directory / "skills" / "custom"


@pytest.mark.scenario("S003-27", "S003-28", "S003-29")
async def test_new_folder_is_registered_and_can_be_assigned_to_others(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler()
    await tester.start()
    with capture_logs() as log:
        write_report(custom_of(tester))
        event = await until_event(log, "skill:created")
    assert event["createdBy"] == "tester"
    assert (event["skill"]["id"], event["skill"]["version"]) == ("weekly-reports", "1.0.0")
    assert event["skill"]["scripts"] == ["scripts/generate-report.py"]
    assert known_butlers(tester.home) == (tester.directory.resolve(),)
    registered = tester.registry.get("weekly-reports")
    assert registered.owner == "tester"
    assert registered.release(None).state is SkillState.DRAFT
    other = tester.directory.parent / "other"
    write_tester(other, "unused")
    (other / "butler.toml").write_text('[butler]\nname = "other"\nport = 0\n')
    config = load_butler_config(other, Settings(tester.home))
    with pytest.raises(SkillUnresolved, match="is a draft of tester"):
        assign(tester.registry, config, "weekly-reports")
    async with tester.owner() as owner:
        await owner.call("skill_approve", {"skill": "weekly-reports"})
    assert assign(tester.registry, config, "weekly-reports")["changed"]
    config = load_butler_config(other, Settings(tester.home))
    assert config.skills.packs == ("weekly-reports@1.0.0",)


@pytest.mark.parametrize("trouble", ["unreadable folder", "unreadable list"])
async def test_butler_makes_skills_when_other_butlers_are_unreadable(
    make_pack_butler: MakeButler, trouble: str
) -> None:
    tester = make_pack_butler()
    listed = tester.home / "registry" / "butlers.json"
    listed.parent.mkdir(parents=True, exist_ok=True)
    if trouble == "unreadable list":
        listed.mkdir()
    else:
        listed.write_text(json.dumps([str(listed.parent / ("x" * 300))]))  # name too long
    with capture_logs() as log:
        await tester.start()
        write_report(custom_of(tester))
        await until_event(log, "skill:created")
    warned = [line["folder"] for line in log if line["event"] == "butler folder not recorded"]
    assert warned == ([str(tester.directory)] if listed.is_dir() else [])
    assert tester.registry.get("weekly-reports").owner == "tester"


async def test_skill_made_while_the_butler_was_off_is_announced_once(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler()
    write_report(custom_of(tester))
    with capture_logs() as log:
        await tester.start()
        await until_event(log, "skill:created")
        await tester.butler.stop()
        await tester.start()
        await tester.butler.skills.maker.register_all()
    assert [line["event"] for line in log].count("skill:created") == 1


@pytest.mark.scenario("S003-30")
async def test_invalid_skill_is_reported_with_all_errors_until_fixed(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler()
    custom_of(tester).mkdir()
    await tester.start()
    with capture_logs() as log:
        folder = write_report(custom_of(tester), version="one", context=["context/none.md"])
        await until_event(log, "skill:invalid")
        async with tester.session() as session:
            listed = await session.call("skill_list")
        (report,) = listed["invalid"]
        assert report["folder"] == "weekly-reports"
        told = "\n".join(report["errors"])
        assert "manifest-version" in told
        assert "manifest-context-missing" in told
        assert "weekly-reports" not in tester.registry.catalog().skills
        assert not any(line["event"] == "skill:created" for line in log)
        write_report(folder.parent)
        await until_event(log, "skill:created")
    assert tester.butler.skills.maker.invalid == {}


async def test_changed_content_of_a_registered_version_is_refused(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler()
    write_report(custom_of(tester))
    with capture_logs() as log:
        await tester.start()
        await until_event(log, "skill:created")
        digest = tester.registry.get("weekly-reports").release(None).digest
        write_report(custom_of(tester), description="Another.")
        event = await until_event(log, "skill:invalid")
    assert "is already registered with different content" in event["errors"]
    assert tester.registry.get("weekly-reports").release(None).digest == digest


async def test_false_owner_and_outside_links_are_refused(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler()
    tester.register("report")
    await tester.start()
    maker, custom = tester.butler.skills.maker, custom_of(tester)
    digest = tester.registry.get("report").release(None).digest
    write_pack(custom / "report", id="report", version="1.1.0", owner="tester")
    write_pack(custom / "posing", id="posing", version="1.0.0", owner="built-in")
    leaving = write_pack(custom / "leaving", id="leaving", version="1.0.0", owner="tester")
    (leaving / "key.md").symlink_to(tester.directory / "butler.toml")
    await maker.register_all()
    assert set(maker.invalid) == {"report", "posing", "leaving"}
    assert "report belongs to me" in maker.invalid["report"]
    assert "names built-in as its owner" in maker.invalid["posing"]
    assert "tree-link-leaves" in maker.invalid["leaving"]
    assert set(tester.registry.catalog().skills) == {"report"}
    assert tester.registry.get("report").release(None).digest == digest


async def test_sealed_session_makes_a_skill_and_uses_it_after_approval(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler()
    custom_of(tester).mkdir()
    await tester.start()
    with capture_logs() as log:
        async with tester.session() as session:
            answer = await session.call("skill_create", REPORT)
            assert answer == {"skill": "weekly-reports@1.0.0", "state": "draft"}
            opened = await session.call("skill_open", {"skill": "weekly-reports"})
            assert opened["instructions"] == "# Weekly\n\nCollect, then write."
            assert (opened["origin"], opened["state"]) == ("made", "draft")
            run = {"skill": "weekly-reports", "script": "generate-report", "arguments": {"week": 7}}
            with pytest.raises(NotAllowed, match="before a person approves it"):
                await session.call("skill_run", run)
            async with tester.owner() as owner:
                approved = await owner.call("skill_approve", {"skill": "weekly-reports@1.0.0"})
            assert approved["state"] == "approved"
            assert (await session.call("skill_run", run))["result"] == {"said": {"week": 7}}
    assert [line["event"] for line in log].count("skill:created") == 1
    assert (custom_of(tester) / "weekly-reports" / "manifest.json").is_file()
    assert [path.name for path in custom_of(tester).iterdir()] == ["weekly-reports"]


async def test_only_the_approved_content_runs(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler()
    custom_of(tester).mkdir()
    await tester.start()
    run = {"skill": "weekly-reports", "script": "generate-report"}
    async with tester.session() as session, tester.owner() as owner:
        await session.call("skill_create", REPORT)
        await owner.call("skill_approve", {"skill": "weekly-reports"})
        tester.tamper("weekly-reports", "scripts/generate-report.py")
        with pytest.raises(SkillChanged):
            await session.call("skill_run", run)
        with pytest.raises(SkillChanged):
            await owner.call("skill_approve", {"skill": "weekly-reports"})
        (custom_of(tester) / "weekly-reports" / "scripts" / "generate-report.py").write_text("!")
        with pytest.raises(SkillChanged):
            await session.call("skill_run", run)


async def test_skill_create_reports_all_errors_and_leaves_nothing(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler()
    custom_of(tester).mkdir()
    await tester.start()
    async with tester.session() as session:
        wrong = {**REPORT, "id": "Weekly Reports", "version": "first", "env_vars": ["not a name"]}
        with pytest.raises(InvalidSkill) as refused:
            await session.call("skill_create", wrong)
        for code in ("manifest-id", "manifest-version", "manifest-env-var"):
            assert code in refused.value.message
        for path in ("../../escape.py", "/etc/passwd", ".hidden"):
            with pytest.raises(InvalidSkill, match="invalid paths"):
                await session.call("skill_create", {**REPORT, "files": {path: "x"}})
        await session.call("skill_create", REPORT)
        with pytest.raises(SkillVersionTaken):
            await session.call("skill_create", {**REPORT, "instructions": "Else."})
        newer = {**REPORT, "instructions": "Else.", "version": "1.1.0"}
        assert (await session.call("skill_create", newer))["skill"] == "weekly-reports@1.1.0"
    manifest = json.loads((custom_of(tester) / "weekly-reports" / "manifest.json").read_text())
    assert manifest["version"] == "1.1.0"
    assert [path.name for path in custom_of(tester).iterdir()] == ["weekly-reports"]


async def test_session_with_untrusted_input_cannot_make_skills(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler()
    custom_of(tester).mkdir()
    await tester.start()
    stranger = replace(request_context(), sender_roles=())
    async with tester.session(request=stranger) as session:
        with pytest.raises(NotAllowed, match="message of another person"):
            await session.call("skill_create", REPORT)
    async with tester.session(request=request_context()) as session:
        await session.call("skill_create", REPORT)


async def test_owner_is_notified_of_a_new_draft(make_pack_butler: MakeButler) -> None:
    tester = make_pack_butler(extra=SWITCHBOARD)
    custom_of(tester).mkdir()
    await tester.start()
    async with tester.session() as session:
        await session.call("skill_create", REPORT)
    rows = await tester.rows("SELECT payload FROM queue_items WHERE queue = 'notify'")
    (told,) = [json.loads(row["payload"]) for row in rows]
    assert told["target"] == "console:owner"
    assert "made the skill weekly-reports@1.0.0" in told["message"]
    assert "`butlers skills approve weekly-reports@1.0.0`" in told["message"]


async def told_of(tester: InProcessButler) -> list[str]:
    rows = await tester.rows("SELECT payload FROM queue_items WHERE queue = 'notify'")
    return [json.loads(row["payload"])["message"].split(":")[0] for row in rows]


async def test_owner_is_notified_after_a_crash(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler(extra=SWITCHBOARD)
    folder = write_report(custom_of(tester))
    new = NewSkill(folder, by="tester", state=SkillState.DRAFT)
    tester.registry.register(new)
    for _start in range(2):
        await tester.start()
        await until("the owner to be told", lambda: told_of(tester))
        await tester.butler.stop()
    assert await told_of(tester) == ["tester made the skill weekly-reports@1.0.0"]


async def test_failed_notification_of_a_draft_is_retried(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler(extra=SWITCHBOARD)
    custom_of(tester).mkdir()
    await tester.start()
    maker = tester.butler.skills.maker
    await until("the start to be over", lambda: not maker._notice_due or None)
    await tester.rows("ALTER TABLE queue_items RENAME TO away")
    with capture_logs() as log:
        await maker.create(SkillDraft("weekly-reports", "Writes.", "Collect."))
    assert tester.registry.get("weekly-reports").latest == "1.0.0"
    assert any(line["event"] == "owner not told of a skill" for line in log)
    await tester.rows("ALTER TABLE away RENAME TO queue_items")
    assert await told_of(tester) == []
    await maker.send_notices()
    await maker.send_notices()
    assert await told_of(tester) == ["tester made the skill weekly-reports@1.0.0"]


async def test_a_draft_has_no_secrets(make_pack_butler: MakeButler) -> None:
    tester = make_pack_butler()
    custom_of(tester).mkdir()
    await tester.start()
    await tester.secret("TWITTER_KEY", "twitter-key-4711-abcdef")
    async with tester.session() as session:
        await session.call("skill_create", {**REPORT, "env_vars": ["TWITTER_KEY"]})
    async with tester.owner() as owner:
        run = {"skill": "weekly-reports", "script": "generate-report"}
        assert (await owner.call("skill_run", run))["missing"] == ["TWITTER_KEY"]
        await owner.call("skill_approve", {"skill": "weekly-reports"})
        assert (await owner.call("skill_run", run))["missing"] == []


async def test_session_cannot_approve_or_assign(make_pack_butler: MakeButler) -> None:
    tester = make_pack_butler()
    custom_of(tester).mkdir()
    await tester.start()
    async with tester.session() as session:
        await session.call("skill_create", REPORT)
        for tool in ("skill_approve", "skill_assign"):
            with pytest.raises(NotAllowed):
                await session.call(tool, {"skill": "weekly-reports"})


async def test_owner_assigns_a_skill_with_a_tool(make_pack_butler: MakeButler) -> None:
    tester = make_pack_butler("report@1.0.0")
    tester.register("report")
    tester.register("more", {"context/a.md": "More."}, context=["context/a.md"])
    await tester.start()
    async with tester.owner() as owner:
        answer = await owner.call("skill_assign", {"skill": "more"})
        again = await owner.call("skill_assign", {"skill": "more@1.0.0"})
    assert (answer["skill"], answer["changed"], again["changed"]) == ("more@1.0.0", True, False)
    await tester.butler.stop()
    await tester.start()
    states = (await tester.status())["skills"]
    assert [state["skill"] for state in states] == ["report@1.0.0", "more@1.0.0"]
