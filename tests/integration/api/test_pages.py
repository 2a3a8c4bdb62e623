"""Pages of the dashboard on a real butler: skills with warnings, drafts, the soul, the audit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from butlers.domain.errors import ButlersError
from support.in_process import MakeButler


def files_below(folder: Path) -> list[Path]:
    return list(folder.rglob("*"))


@pytest.mark.scenario("S003-37")
async def test_missing_secret_is_a_warning_in_the_log_and_on_the_pages(
    make_pack_butler: MakeButler, browser: httpx.AsyncClient
) -> None:
    tester = make_pack_butler("social@1.0.0")
    tester.register("social", {}, envVars=["TWITTER_KEY"])
    with capture_logs() as log:
        await tester.start()
    said = [line for line in log if line["event"] == "skill has no value for a variable"]
    assert [(line["log_level"], line["missing"]) for line in said] == [("warning", ["TWITTER_KEY"])]
    assert (await tester.status())["health"] == "healthy"
    skills = (await browser.get("/skills")).text
    assert "social@1.0.0 of tester has no value for <code>TWITTER_KEY</code>" in skills
    butler = (await browser.get("/butlers/tester")).text
    assert "social@1.0.0 has no value for TWITTER_KEY" in butler


@pytest.mark.scenario("S003-26")
@pytest.mark.parametrize("allowed", [True, False])
async def test_soul_is_edited_by_a_person_here_and_by_a_session_only_if_allowed(
    make_pack_butler: MakeButler, browser: httpx.AsyncClient, allowed: bool
) -> None:
    tester = make_pack_butler(skills=f"allow_soul_edit = {str(allowed).lower()}")
    await tester.start()
    page = "/butlers/tester/soul"
    before = (await browser.get(page)).text
    assert "Not edited yet" in before
    assert ("Its sessions may change it too" in before) is allowed
    answer = await browser.post(page, data={"text": "You are calm.\r\nYou are exact."})
    assert answer.status_code == 200
    assert (tester.directory / "soul.md").read_text() == "You are calm.\nYou are exact."
    shown = (await browser.get(page)).text
    assert '<span class="add">+You are exact.</span>' in shown
    async with tester.session() as session:
        if allowed:
            await session.call("soul_edit", {"text": "brisk", "replaces": "calm"})
        else:
            with pytest.raises(ButlersError):
                await session.call("soul_edit", {"text": "brisk", "replaces": "calm"})
    now = (tester.directory / "soul.md").read_text()
    assert ("brisk" in now) is allowed
    if allowed:
        assert '<span class="gone">-You are calm.</span>' in (await browser.get(page)).text


async def test_draft_is_compared_with_its_forerunner_and_approved(
    make_pack_butler: MakeButler, browser: httpx.AsyncClient
) -> None:
    tester = make_pack_butler()
    (tester.directory / "skills" / "custom").mkdir(parents=True)
    await tester.start()
    async with tester.session() as session:
        made = {"id": "waver", "description": "Wave at people.", "instructions": "Wave.\n"}
        await session.call("skill_create", made)
        await session.call(
            "skill_create", {**made, "version": "1.1.0", "instructions": "Wave twice.\n"}
        )
    assert "Drafts that wait for you" in (await browser.get("/skills")).text
    page = (await browser.get("/skills/waver?version=1.1.0")).text
    assert '<span class="gone">-Wave.</span>' in page
    assert '<span class="add">+Wave twice.</span>' in page
    answer = await browser.post("/skills/waver/approve", data={"version": "1.1.0"})
    assert answer.status_code == 200, answer.text
    assert "✓ approved" in (await browser.get("/skills/waver?version=1.1.0")).text
    assert (await browser.get("/skills/nobody")).status_code == 404


async def test_change_made_here_is_in_the_audit(
    make_pack_butler: MakeButler, browser: httpx.AsyncClient
) -> None:
    tester = make_pack_butler()
    await tester.start()
    await browser.post("/butlers/tester/soul", data={"text": "You are calm."})
    audit = (await browser.get("/audit")).text
    assert "soul edit" in audit
    assert "signed in" in audit
    assert "soul edit" not in (await browser.get("/audit?who=session")).text


async def test_secrets_page_without_a_vault_says_so(browser: httpx.AsyncClient) -> None:
    answer = await browser.get("/secrets")
    assert answer.status_code == 400
    assert "started without the secrets" in answer.text


async def test_upload_of_an_unknown_kind_is_refused_and_not_kept(
    browser: httpx.AsyncClient, home: Path
) -> None:
    """Attack: a file whose name leaves the folder."""
    answer = await browser.post(
        "/import",
        files={"file": ("../../evil\\..\\x.bin", b"\0\1\2")},
        headers={"hx-request": "true"},
    )
    assert answer.status_code == 400
    assert "no known kind" in answer.text
    assert not any("x.bin" in str(path) for path in await asyncio.to_thread(files_below, home))
