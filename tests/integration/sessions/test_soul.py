"""The soul is edited by its owner, and by sessions where that is allowed; each edit can be taken back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from butlers.domain.errors import InvalidArguments, NotAllowed, NotFound, StateConflict
from butlers.wire.client import McpClient
from support.in_process import MakeButler
from support.messages import request_context

ALLOWED = "allow_soul_edit = true"
FILE = "You are the tester. You are calm."


async def test_session_edits_the_soul_only_if_the_configuration_allows_it(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler()
    await tester.start()
    async with tester.session() as session:
        assert not {one["name"] for one in await session.list_tools()} & {"soul_edit", "soul_undo"}
        with pytest.raises(NotAllowed):
            await session.call("soul_edit", {"text": "Free."})
    async with tester.owner() as owner:
        await owner.call("soul_edit", {"text": "As its owner says."})
    asked, _ = await tester.think()
    assert asked.system_prompt == "As its owner says."


async def test_soul_edit_is_in_the_next_prompt_and_can_be_undone(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler(skills=ALLOWED)
    await tester.start()
    file = tester.directory / "CLAUDE.md"
    file.write_text(FILE)

    async def learn(butler: McpClient) -> str:
        first = await butler.call(
            "soul_edit", {"text": "You are bold.", "replaces": "You are calm."}
        )
        second = await butler.call("soul_edit", {"text": "You are someone else."})
        return f"{first['edit']} {second['edit']}"

    before, result = await tester.think(learn)
    after, _ = await tester.think()
    assert (before.system_prompt, result.text) == (FILE, "1 2")
    assert after.system_prompt == "You are someone else."
    async with tester.owner() as owner:
        assert await owner.call("soul_undo") == {"undone": 2}
        undone, _ = await tester.think()
        assert undone.system_prompt == "You are the tester. You are bold."
        assert await owner.call("soul_undo") == {"undone": 1}
        with pytest.raises(NotFound):
            await owner.call("soul_undo")
    again, _ = await tester.think()
    assert again.system_prompt == FILE
    assert file.read_text() == FILE, "a person's file is never touched"
    assert not (tester.directory / "soul.md").exists()
    rows = await tester.rows("SELECT tool FROM tool_calls WHERE tool LIKE 'soul%'")
    assert len(rows) == 5


async def test_undo_refuses_a_soul_changed_by_hand(make_pack_butler: MakeButler) -> None:
    tester = make_pack_butler(skills=ALLOWED)
    await tester.start()
    async with tester.owner() as owner:
        await owner.call("soul_edit", {"text": "Once."})
        (tester.directory / "soul.md").write_text("By hand.")
        with pytest.raises(StateConflict, match="changed by hand"):
            await owner.call("soul_undo")
    assert (tester.directory / "soul.md").read_text() == "By hand."


async def test_invalid_soul_or_passage_is_refused(make_pack_butler: MakeButler) -> None:
    tester = make_pack_butler(skills=ALLOWED)
    await tester.start()
    (tester.directory / "CLAUDE.md").write_text("Calm, and calm.")
    async with tester.session() as session:
        for wrong in (
            {"text": "<!-- nothing -->"},
            {"text": ""},
            {"text": "bold", "replaces": "not there"},
            {"text": "x" * 50_001},
        ):
            with pytest.raises(InvalidArguments):
                await session.call("soul_edit", wrong)
    assert not (tester.directory / "soul.md").exists()


async def test_outside_text_cannot_change_the_soul(make_pack_butler: MakeButler) -> None:
    tester = make_pack_butler(skills=ALLOWED)
    await tester.start()
    stranger = replace(request_context(), sender_roles=())
    async with tester.session(request=stranger) as session:
        for tool, arguments in (("soul_edit", {"text": "Obey."}), ("soul_undo", {})):
            with pytest.raises(NotAllowed, match="message of another person"):
                await session.call(tool, arguments)


async def test_retried_soul_edit_happens_once(
    make_pack_butler: MakeButler,
) -> None:
    tester = make_pack_butler(skills=ALLOWED)
    await tester.start()
    request = request_context()
    for _run in range(2):
        async with tester.session(request=request) as session:
            assert await session.call("soul_edit", {"text": "Once."}) == {"edit": 1}
