"""Requests between butlers: only through the Switchboard, and only to shared tools."""

from __future__ import annotations

from typing import Any

import pytest

from butlers.domain.caller import SESSIONS
from butlers.domain.errors import NotAllowed, NotFound
from butlers.sdk import CallContext, Effect, tool
from butlers.tools.peers import _is_untrusted
from support.in_process import InProcessButler, MakeButler
from support.messages import request_context
from support.tester_folder import TOOLS
from support.waiting import until

SHARED_TOOLS = TOOLS.replace(
    "@tool(callers=EVERYONE, effect=Effect.READ)\nasync def quick",
    "@tool(callers=SESSIONS, effect=Effect.READ, shared=True)\nasync def quick",
).replace(
    '"name": ctx.caller.name}',
    '"name": ctx.caller.name,\n            "source": {"trust": "outside"} if text == "spam" else None}',
)


@pytest.fixture
async def asker(switchboard: InProcessButler, make_butler: MakeButler) -> InProcessButler:
    """A butler that asks itself under another name, as the registry has two names for its address."""
    url = switchboard.butler.url
    made = make_butler(
        extra=f'[butler.switchboard]\nurl = "{url}"\nadvertise = false\n', tools=SHARED_TOOLS
    )
    await made.start()
    known = {"name": "tester", "url": made.butler.url, "description": "Shares."}
    async with switchboard.peer("tester") as peer:
        await peer.call("register", {"registration": known})
    return made


async def ask(switchboard: InProcessButler, peer: str, **asked: Any) -> Any:
    async with switchboard.peer(peer) as client:
        return await client.call("peer_ask", {"target": "tester", **asked})


async def test_shared_tool_answers_through_the_switchboard(
    switchboard: InProcessButler, asker: InProcessButler
) -> None:
    answer = await ask(switchboard, "finance", tool="quick", arguments={"text": "hi"})
    assert answer["answer"]["text"] == "hi"
    assert (answer["answer"]["caller"], answer["answer"]["name"]) == ("peer", "switchboard")
    shared = (await ask(switchboard, "finance"))["tools"]
    assert {one["tool"] for one in shared} == {"quick", "status"}
    (quick,) = (one for one in shared if one["tool"] == "quick")
    assert quick["description"] == "Say it back, and who asked."
    assert "text" in quick["arguments"]


async def test_session_asks_by_its_own_tool(
    switchboard: InProcessButler, asker: InProcessButler
) -> None:
    """The only other butler that this one could ask is not there, and the answer says who is."""
    async with asker.session() as session:
        with pytest.raises(NotFound, match="no other butler 'tester'"):
            await session.call("ask_butler", {"butler": "tester", "tool": "quick"})


@pytest.mark.parametrize(
    "name", ["write", "control_stop", "route.execute", "sessions_list", "slow"]
)
async def test_nothing_else_is_reached_through_the_switchboard(
    switchboard: InProcessButler, asker: InProcessButler, name: str
) -> None:
    with pytest.raises(NotFound, match="no tool"):
        await ask(switchboard, "finance", tool=name)
    assert await asker.count("entries") == 0


async def test_peers_reach_no_butler_but_the_switchboard(asker: InProcessButler) -> None:
    async with asker.peer("finance") as peer:
        assert await peer.list_tools() == []
        for name in ("status", "shared.status", "sessions_list", "slow", "route.execute"):
            with pytest.raises(NotAllowed):
                await peer.call(name, {})
    async with asker.session() as session, asker.owner() as owner:
        for client in (session, owner):
            with pytest.raises(NotAllowed):
                await client.call("shared.quick", {})


def test_only_reading_tools_can_be_shared() -> None:
    for options in ({"effect": Effect.WRITE}, {"effect": Effect.READ, "outside": True}):
        with pytest.raises(TypeError):

            @tool(callers=SESSIONS, shared=True, **options)  # type: ignore[arg-type]
            async def write(ctx: CallContext) -> None:
                """Write."""


async def test_untrusted_rows_of_another_butler_taint_the_session(
    switchboard: InProcessButler, asker: InProcessButler, make_butler: MakeButler
) -> None:
    known = {"name": "other", "url": asker.butler.url, "description": "The same, once more."}
    async with switchboard.peer("other") as peer:
        await peer.call("register", {"registration": known})
    switchboard.butler.peers._key = _KeyFor(switchboard.butler.peers._key)  # type: ignore[assignment]
    async with asker.session(request=request_context()) as session:
        asked = {"butler": "other", "tool": "quick"}
        plain = await session.call("ask_butler", {**asked, "arguments": {"text": "hello"}})
        assert plain["answer"]["text"] == "hello"
        (live,) = (one for one in asker.butler.guard._live.values() if one.begun)
        assert live.outside == set()
        await session.call("ask_butler", {**asked, "arguments": {"text": "spam"}})
        await until("the taint", lambda: live.outside == {"ask_butler"} or None)


class _KeyFor:
    """Takes every butler for the tester, whatever name the registry has for it."""

    def __init__(self, key: Any) -> None:
        self._key = key

    def prove(self, _audience: str, *facts: Any) -> str:
        return str(self._key.prove("tester", *facts))

    def mint(self, kind: Any, name: str, _audience: str, **options: Any) -> str:
        return str(self._key.mint(kind, name, "tester", **options))


def test_source_is_found_however_deep() -> None:
    row = {"rows": [{"id": 1, "source": {"sender": "x", "trust": "outside"}}]}
    assert _is_untrusted({"answer": row})
    assert not _is_untrusted({"answer": {"source": {"trust": "owner"}, "rows": [{"source": "x"}]}})
    deep: Any = {}
    for _ in range(30):
        deep = {"in": deep}
    assert _is_untrusted(deep), "what is too deep to look at is not trusted"
