"""The context block: budget, order, dates and ids, privacy, and its place in the prompt."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from support.fake_runtime import FakeRuntime
from support.memory import MemoryButler, message_of

DAY = timedelta(days=1)
NOW = datetime.now(UTC)


async def test_block_lists_profile_rules_task_and_recent_with_date_and_id(
    memory: MemoryButler,
) -> None:
    await memory.tell("I live in Berlin", at=NOW - DAY)
    await memory.call("memory_store_rule", content="Answer briefly")
    await memory.call(
        "memory_store_fact", subject="Anna", predicate="pet", content="a dog called Biscuit"
    )
    block = await memory.block("What is the name of Anna's dog?")
    (fact,) = await memory.facts(predicate="lives_in")
    assert f"- owner · lives in: Berlin [{NOW - DAY:%Y-%m-%d}, {fact['id']}]" in block
    parts = [line for line in block.splitlines() if line.startswith("#")]
    assert parts == [
        "# Memory",
        "## About the owner",
        "## Rules of the owner",
        "## Known about this message's subject",
        "## Recent messages of the owner",
    ]
    assert "Biscuit" in block
    assert await memory.block("What is the name of Anna's dog?") == block


async def test_block_never_exceeds_its_limit(memory: MemoryButler) -> None:
    for number in range(60):
        await memory.call(
            "memory_store_fact",
            predicate=f"habit_{number}",
            content=f"does thing number {number} " + "very carefully " * 20,
        )
    for limit, items in ((100, 0), (400, 1), (2_000, 5)):
        found = await memory.owner("memory_context", topic="habits", max_tokens=limit)
        assert len(found["context"]) <= 4 * limit
        assert found["context"].count("\n- ") >= items


async def test_block_follows_the_system_prompt_after_a_blank_line(memory: MemoryButler) -> None:
    await memory.tell("I live in Berlin")
    (memory.inner.directory / "CLAUDE.md").write_text("You are a test.\n")
    asked, _ = await memory.inner.think(source="route")
    # Nothing else is in the prompt: the file, a blank line, the block.
    assert asked.system_prompt == "You are a test.\n\n\n" + await memory.block("think")
    assert "owner · lives in: Berlin" in asked.system_prompt


async def test_without_memories_the_prompt_is_the_file_alone(memory: MemoryButler) -> None:
    (memory.inner.directory / "CLAUDE.md").write_text("You are a test.\n")
    asked, _ = await memory.inner.think(source="route")
    assert asked.system_prompt == "You are a test.\n"


async def test_block_of_an_outside_session_holds_only_what_the_sender_told(
    memory: MemoryButler,
) -> None:
    await memory.tell("I live in Berlin")
    await memory.tell("My name is Robert", "bob")
    await memory.tell("My name is Carol", "carol")
    request = message_of("bob")
    asked, _ = await memory.inner.think(
        source="route", request=request, request_id=request.request_id
    )
    assert "preferred name: Robert" in asked.system_prompt
    assert "Berlin" not in asked.system_prompt
    assert "Carol" not in asked.system_prompt
    mine, _ = await memory.inner.think(source="route")
    assert "Robert" not in mine.system_prompt


async def test_sessions_of_consolidation_get_no_block(memory: MemoryButler) -> None:
    await memory.tell("I live in Berlin")
    memory.inner.butler.spawner.model = FakeRuntime()
    asked, _ = await memory.inner.think(source="memory:consolidation")
    assert "Berlin" not in asked.system_prompt
