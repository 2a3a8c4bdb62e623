"""Learning: recorded messages, plain facts without a model, consolidation, near-duplicates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from butlers.domain.session import Outcome
from butlers.wire.client import McpClient
from support.fake_runtime import FakeRuntime
from support.memory import MemoryButler
from support.waiting import until

DAY = timedelta(days=1)
NOW = datetime.now(UTC)


def answering(*answers: dict[str, Any] | str) -> FakeRuntime:
    """A model that gives these answers in turn, and the last one from then on."""
    given = list(answers)

    async def think(butler: McpClient) -> str:
        await butler.list_tools()
        answer = given.pop(0) if len(given) > 1 else given[0]
        return answer if isinstance(answer, str) else json.dumps(answer)

    return FakeRuntime(think)


async def consolidate(memory: MemoryButler, model: FakeRuntime) -> list[str]:
    """Run the consolidation and everything that follows from it. Return the prompts of its sessions."""
    spawner = memory.inner.butler.spawner
    spawner.model = model
    await memory.owner("memory_run_consolidation")

    async def settled() -> bool | None:
        rows = await memory.inner.rows(
            "SELECT 1 FROM queue_items WHERE queue = 'memory' AND state IN ('ready', 'leased')"
            " AND run_after <= now() + interval '1 minute'"
        )
        return not rows or None

    await until("the consolidation to end", settled)
    return [call.prompt for call in model.asked if "Read the numbered messages" in call.prompt]


async def states(memory: MemoryButler) -> list[str]:
    rows = await memory.inner.rows("SELECT consolidation FROM memory_episodes ORDER BY id")
    return [row["consolidation"] for row in rows]


async def dead_letters(memory: MemoryButler) -> Sequence[Any]:
    return await memory.inner.rows(
        "SELECT error FROM queue_items WHERE queue = 'memory' AND state = 'dead'"
    )


async def test_message_is_recorded_with_its_plain_facts_without_a_model(
    memory: MemoryButler,
) -> None:
    request = await memory.tell("Hi! I live in Berlin. Alice's birthday is 4 May. Call me Sam!")
    (episode,) = await memory.inner.rows("SELECT * FROM memory_episodes")
    assert (episode["request_id"], episode["trust"]) == (request.request_id, "owner")
    assert episode["expires_at"] == request.received_at + 7 * DAY
    facts = {(f["subject"], f["predicate"], f["content"]) for f in await memory.facts()}
    assert facts == {
        ("owner", "lives_in", "Berlin"),
        ("Alice", "birthday", "4 May"),
        ("owner", "preferred_name", "Sam"),
    }
    assert {f["source_episode_id"] for f in await memory.facts()} == {episode["id"]}


async def test_corrected_statement_supersedes(memory: MemoryButler) -> None:
    await memory.tell("I live in Berlin", at=NOW - DAY)
    await memory.tell("No, actually I live in Munich")
    active = await memory.facts(validity="active", predicate="lives_in")
    assert [fact["content"] for fact in active] == ["Munich"]


async def test_route_that_arrives_twice_is_one_episode(memory: MemoryButler) -> None:
    request = await memory.tell("We had dinner with the Smiths")
    async with memory.inner.butler.database.transaction() as connection:
        rows = await connection.fetch("SELECT payload FROM queue_items WHERE queue = 'routes'")
    async with memory.inner.peer("switchboard") as switchboard:
        again = await switchboard.call("route.execute", {"route": rows[0]["payload"]})
    assert again["duplicate"]
    assert request is not None
    assert len(await states(memory)) == 1


async def test_chatter_is_not_consolidated_and_starts_no_session(memory: MemoryButler) -> None:
    for text in ("thanks!", "remind me in 5 minutes to stretch", "what's the weather?"):
        await memory.tell(text)
    assert await states(memory) == ["skipped"] * 3
    assert await consolidate(memory, answering({})) == []


async def test_consolidation_is_planned_once_per_interval(memory: MemoryButler) -> None:
    for text in ("The Smiths came for dinner", "The plumber comes on Friday mornings now"):
        await memory.tell(text)
    planned = await memory.inner.rows("SELECT * FROM queue_items WHERE queue = 'memory'")
    assert len(planned) == 1
    assert planned[0]["run_after"] > datetime.now(UTC)


async def test_answer_becomes_facts_rules_and_confirmations_with_their_source(
    memory: MemoryButler,
) -> None:
    known = await memory.call(
        "memory_store_fact", at=NOW - 9 * DAY, predicate="diet", content="vegetarian"
    )
    moved = await memory.call(
        "memory_store_fact", at=NOW - 9 * DAY, predicate="employer", content="Acme"
    )
    first = await memory.tell("Since spring Anna takes ballet lessons with Mrs. Kim on Tuesdays")
    second = await memory.tell("From now on keep the answers short. I still eat no meat.")
    prompts = await consolidate(
        memory,
        answering(
            {
                "new_facts": [
                    {
                        "episode": 1,
                        "subject": "Anna",
                        "predicate": "takes lessons",
                        "content": "ballet with Mrs. Kim on Tuesdays",
                        "permanence": "standard",
                    }
                ],
                "updated_facts": [{"episode": 2, "id": moved["id"], "content": "Bolt"}],
                "new_rules": [{"episode": 2, "content": "Keep answers short"}],
                "confirmations": [known["id"]],
            }
        ),
    )
    assert len(prompts) == 1
    assert "ballet lessons" in prompts[0]
    (fact,) = await memory.facts(subject="Anna")
    assert (fact["predicate"], fact["request_id"]) == ("takes_lessons", first.request_id)
    (rule,) = await memory.inner.rows("SELECT * FROM memory_rules")
    assert (rule["content"], rule["request_id"]) == ("Keep answers short", second.request_id)
    (diet,) = await memory.facts(predicate="diet")
    assert diet["last_confirmed_at"] == second.received_at
    employers = await memory.facts(predicate="employer")
    assert [(e["content"], e["validity"]) for e in employers] == [
        ("Acme", "superseded"),
        ("Bolt", "active"),
    ]
    assert await states(memory) == ["done", "done"]


async def test_session_of_consolidation_has_no_tools_and_leaves_no_episode(
    memory: MemoryButler,
) -> None:
    await memory.tell("Tom started to learn the cello this week with great joy")
    offered: list[str] = []

    async def think(butler: McpClient) -> str:
        offered.extend(tool.name for tool in await butler.list_tools())
        return "{}"

    await consolidate(memory, FakeRuntime(think))
    assert offered == []
    assert await states(memory) == ["done"]
    assert await consolidate(memory, answering({})) == []  # its own output is no input


async def test_invalid_answer_is_asked_for_again(memory: MemoryButler) -> None:
    await memory.tell("Tom started to learn the cello this week with great joy")
    fact = {"episode": 1, "subject": "Tom", "predicate": "learns", "content": "cello"}
    prompts = await consolidate(
        memory,
        answering("Sure! Here it is.", "```json\n" + json.dumps({"new_facts": [fact]}) + "\n```"),
    )
    assert len(prompts) == 2
    assert "was rejected" in prompts[1]
    assert [f["content"] for f in await memory.facts()] == ["cello"]


@pytest.mark.parametrize(
    "answer",
    [
        "I remembered everything.",
        '{"new_facts": [{"subject": "owner", "predicate": "x", "content": "y"}]}',
        '{"new_facts": [], "delete_all": true}',
        '{"new_facts": [{"episode": 1, "subject": "a", "predicate": "b", "content": 7}]}',
        "[" * 5_000,
    ],
)
async def test_wrong_form_becomes_a_dead_letter_and_later_episodes_go_on(
    memory: MemoryButler, answer: str
) -> None:
    await memory.tell("Tom started to learn the cello this week with great joy")
    await consolidate(memory, answering(answer))
    assert await states(memory) == ["dead"]
    (letter,) = await dead_letters(memory)
    assert "not the JSON" in letter["error"]
    assert await memory.facts() == []
    await memory.tell("Mia joined the chess club at her school last week")
    await consolidate(memory, answering({}))
    assert await states(memory) == ["dead", "done"]


async def test_entry_without_a_message_of_the_batch_is_refused_alone(memory: MemoryButler) -> None:
    await memory.tell("Tom started to learn the cello this week with great joy")
    good = {"episode": 1, "subject": "Tom", "predicate": "learns", "content": "cello"}
    bad = {"episode": 9, "subject": "owner", "predicate": "is", "content": "a millionaire"}
    junk = {"episode": 1, "subject": "owner", "predicate": "said", "content": "Is it so?"}
    await consolidate(memory, answering({"new_facts": [bad, junk, good]}))
    assert [f["content"] for f in await memory.facts()] == ["cello"]
    (event,) = await memory.inner.rows("SELECT * FROM memory_events WHERE kind = 'consolidated'")
    assert json.loads(event["detail"]) == {"applied": 1, "refused": 2}


async def test_unavailable_model_is_waited_for_without_using_an_attempt(
    memory: MemoryButler,
) -> None:
    await memory.tell("Tom started to learn the cello this week with great joy")
    model = answering({})
    model.outcome = Outcome.RATE_LIMITED
    memory.inner.butler.spawner.model = model
    await memory.owner("memory_run_consolidation")

    async def waits() -> bool | None:
        rows = await memory.inner.rows(
            "SELECT 1 FROM queue_items WHERE queue = 'memory' AND waits_since IS NOT NULL"
        )
        return bool(rows) or None

    await until("the item to wait", waits)
    assert await states(memory) == ["pending"]
    model.outcome = Outcome.OK

    async def done() -> bool | None:
        return (await states(memory)) == ["done"] or None

    await until("the consolidation", done)


async def test_without_a_model_episodes_stay_pending(memory: MemoryButler) -> None:
    await memory.tell("Tom started to learn the cello this week with great joy")
    memory.inner.butler.spawner.model = None
    run = (await memory.owner("memory_run_consolidation"))["run"]

    async def result() -> Any:
        (row,) = await memory.inner.rows("SELECT * FROM queue_items WHERE id = $1::text::uuid", run)
        return row["result"] if row["state"] == "done" else None

    assert json.loads(await until("the item", result))["status"] == "no model"
    assert await states(memory) == ["pending"]


async def test_facts_that_say_the_same_are_merged(memory: MemoryButler) -> None:
    for number, (predicate, content) in enumerate(
        [
            ("morning_habit", "drinks a cup of green tea every morning"),
            ("morning_routine", "drinks a cup of green tea every morning"),
            ("hobby", "plays the violin in an orchestra"),
        ]
    ):
        await memory.call(
            "memory_store_fact",
            at=NOW - (9 - number) * DAY,
            subject="Ann",
            predicate=predicate,
            content=content,
        )
    done = await memory.owner("memory_run_episode_cleanup")
    assert done["facts_merged"] == 1
    active = await memory.facts(validity="active")
    assert [fact["predicate"] for fact in active] == ["morning_routine", "hobby"]


async def test_expired_episodes_are_deleted_and_pending_ones_get_grace(
    memory: MemoryButler,
) -> None:
    await memory.tell("thanks!", at=NOW - 9 * DAY)
    await memory.tell("Tom started to learn the cello this week with joy", at=NOW - 9 * DAY)
    await memory.tell("Tom gave up the cello again, sadly, for football", at=NOW - 16 * DAY)
    done = await memory.owner("memory_run_episode_cleanup")
    assert done["episodes_deleted"] == 2
    assert await states(memory) == ["pending"]
