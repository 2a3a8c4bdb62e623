"""The state tools: values by key, versions, compare-and-set, rejected values."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from butlers.domain.clock import uuid7
from butlers.domain.errors import ButlersError, InvalidArguments, StateConflict
from support.in_process import InProcessButler


async def test_value_is_stored_read_and_deleted(tester: InProcessButler) -> None:
    async with tester.owner() as owner:
        value = {"list": [1, None, "ü"], "deep": {"x": 1.5}}
        assert await owner.call("state_set", {"key": "a/b", "value": value}) == {"version": 1}
        found = await owner.call("state_get", {"key": "a/b"})
        assert (found["value"], found["version"]) == (value, 1)
        assert await owner.call("state_set", {"key": "a/b", "value": None}) == {"version": 2}
        assert (await owner.call("state_get", {"key": "a/b"}))["value"] is None
        assert await owner.call("state_delete", {"key": "a/b"}) == {"deleted": True}
        assert await owner.call("state_delete", {"key": "a/b"}) == {"deleted": False}
        assert await owner.call("state_get", {"key": "a/b"}) is None


async def test_compare_and_set_succeeds_once_of_many(tester: InProcessButler) -> None:
    async with tester.owner() as owner:
        await owner.call("state_set", {"key": "n", "value": 0})

        async def add() -> bool:
            arguments = {"key": "n", "value": 1, "expected_version": 1}
            try:
                await owner.call("state_set", arguments)
            except StateConflict:
                return False
            return True

        assert sum(await asyncio.gather(*(add() for _ in range(8)))) == 1
        assert (await owner.call("state_get", {"key": "n"}))["version"] == 2
        with pytest.raises(StateConflict, match="is version 2, not version 0"):
            await owner.call("state_set", {"key": "n", "value": 9, "expected_version": 0})
        with pytest.raises(StateConflict, match="is missing"):
            await owner.call("state_delete", {"key": "none", "expected_version": 3})
        made = await owner.call("state_set", {"key": "m", "value": 1, "expected_version": 0})
        assert made == {"version": 1}


async def test_keys_are_listed_in_order_by_prefix_and_page(tester: InProcessButler) -> None:
    async with tester.owner() as owner:
        for key in ("b", "a%", "a_", "ab", "a"):
            await owner.call("state_set", {"key": key, "value": key.upper()})
        assert (await owner.call("state_list"))["keys"] == ["a", "a%", "a_", "ab", "b"]
        assert (await owner.call("state_list", {"prefix": "a_"}))["keys"] == ["a_"]
        page = await owner.call("state_list", {"after": "a%", "limit": 2, "keys_only": False})
        assert [(entry["key"], entry["value"]) for entry in page["entries"]] == [
            ("a_", "A_"),
            ("ab", "AB"),
        ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"key": "", "value": 1}, "key"),
        ({"key": "k" * 201, "value": 1}, "key"),
        ({"key": "a\nb", "value": 1}, "control character at position 1"),
        ({"key": "module:health:enabled", "value": True}, "reserved for the butler"),
        ({"key": "large", "value": "x" * 1_000_001}, "at most 1,000,000"),
        ({"key": "version", "value": 1, "expected_version": -1}, "expected_version"),
    ],
)
async def test_unstorable_value_is_rejected_with_the_reason(
    tester: InProcessButler, arguments: dict[str, Any], said: str
) -> None:
    async with tester.owner() as owner:
        with pytest.raises(InvalidArguments, match=said):
            await owner.call("state_set", arguments)
        assert (await owner.call("state_list"))["keys"] == []


async def test_session_sets_state_once_however_often_it_runs(tester: InProcessButler) -> None:
    request_id = uuid7()
    for _run in range(2):
        async with tester.session(request_id) as session:
            assert await session.call("state_set", {"key": "x", "value": 1}) == {"version": 1}


async def test_peers_may_not_use_the_state_store(tester: InProcessButler) -> None:
    async with tester.peer("switchboard") as peer:
        with pytest.raises(ButlersError, match="may not call"):
            await peer.call("state_get", {"key": "x"})
