"""Storing: source of each item, supersession, contradictions, decay, rules and entities."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from butlers.domain.errors import InvalidArguments, NotFound
from support.memory import MemoryButler, message_of

DAY = timedelta(days=1)
NOW = datetime.now(UTC)


async def test_item_carries_message_session_butler_sender_and_trust(memory: MemoryButler) -> None:
    request = message_of()
    async with memory.inner.session(request=request) as session:
        await session.call("memory_store_fact", {"predicate": "lives_in", "content": "Berlin"})
    (fact,) = await memory.facts()
    assert (fact["butler"], fact["sender"], fact["trust"]) == ("tester", "owner", "owner")
    assert fact["request_id"] == request.request_id
    assert fact["session_id"] is not None
    assert fact["observed_at"] == request.received_at
    assert fact["valid_from"] == request.received_at


async def test_new_value_supersedes_the_old_and_both_stay_with_dates(memory: MemoryButler) -> None:
    before, after = NOW - 30 * DAY, NOW - DAY
    old = await memory.call("memory_store_fact", at=before, predicate="lives_in", content="Berlin")
    new = await memory.call("memory_store_fact", at=after, predicate="lives_in", content="Munich")
    assert new["status"] == "superseded"
    assert new["superseded"] == old["id"]
    shown = await memory.call("memory_get", id=new["id"])
    assert shown["content"] == "Munich"
    (history,) = shown["history"]
    assert (history["content"], history["validity"]) == ("Berlin", "superseded")
    assert history["valid_to"] == f"{after:%Y-%m-%d}"
    assert {"relation": "supersedes", "from": new["id"], "to": old["id"]} in shown["links"]


async def test_older_value_told_later_becomes_history(memory: MemoryButler) -> None:
    await memory.call("memory_store_fact", at=NOW, predicate="lives_in", content="Munich")
    told = await memory.call(
        "memory_store_fact",
        predicate="lives_in",
        content="Rome",
        valid_from=(NOW - 900 * DAY).isoformat(),
    )
    assert told["status"] == "historic"
    assert [f["content"] for f in await memory.facts(validity="active")] == ["Munich"]


async def test_restatement_confirms_instead_of_adding(memory: MemoryButler) -> None:
    early, late = NOW - 20 * DAY, NOW - DAY
    first = await memory.call("memory_store_fact", at=early, predicate="job", content="A nurse")
    again = await memory.call("memory_store_fact", at=late, predicate="job", content="a nurse!")
    assert (again["status"], again["id"]) == ("confirmed", first["id"])
    (fact,) = await memory.facts()
    assert fact["last_confirmed_at"] == late


async def test_values_with_qualifiers_stand_side_by_side(memory: MemoryButler) -> None:
    for food in ("sushi", "ramen"):
        await memory.call("memory_store_fact", predicate="likes", content=food, qualifier=food)
    assert {f["content"] for f in await memory.facts(validity="active")} == {"sushi", "ramen"}


async def test_contradiction_of_another_source_stands_beside_until_settled(
    memory: MemoryButler,
) -> None:
    told = await memory.call(
        "memory_store_fact", sender="bob", predicate="phone", content="0171 111"
    )
    (bob,) = await memory.facts()
    mine = await memory.call(
        "memory_store_fact",
        predicate="phone",
        content="0172 222",
        entity_id=str(bob["entity_id"]),
    )
    assert mine["contradicts"] == [told["id"]]
    assert len(await memory.facts(validity="active")) == 2
    assert (await memory.owner("memory_stats"))["quality"]["contradictions"] == 1
    settled = await memory.call("memory_confirm", id=mine["id"])
    assert settled["retracted"] == [told["id"]]
    assert (await memory.owner("memory_stats"))["quality"]["contradictions"] == 0


async def test_confidence_decays_by_permanence_at_read_time(memory: MemoryButler) -> None:
    long_ago = NOW - 100 * DAY
    for permanence in ("permanent", "standard", "volatile", "ephemeral"):
        await memory.call(
            "memory_store_fact",
            at=long_ago,
            subject="Ann",
            predicate=f"mood_{permanence}",
            content="cheerful",
            permanence=permanence,
        )
    found = await memory.owner("memory_search", query="cheerful", min_confidence=0, limit=20)
    shown = {item["predicate"]: item["confidence"] for item in found["items"]}
    assert shown["mood_permanent"] == 1.0
    assert shown["mood_standard"] == pytest.approx(0.45, abs=0.01)
    assert shown["mood_volatile"] == pytest.approx(0.05, abs=0.01)
    assert shown["mood_ephemeral"] == 0
    default = await memory.owner("memory_search", query="cheerful", limit=20)
    assert "mood_ephemeral" not in {item["predicate"] for item in default["items"]}
    done = await memory.owner("memory_run_episode_cleanup")
    assert done["facts_expired"] == 2  # volatile is just below the limit, too


async def test_rule_matures_with_success_and_becomes_a_warning_with_harm(
    memory: MemoryButler,
) -> None:
    rule = await memory.call("memory_store_rule", content="Answer in German")
    for _ in range(5):
        shown = await memory.call("memory_mark_helpful", id=rule["id"])
    assert shown["maturity"] == "established"
    for _ in range(3):
        shown = await memory.call("memory_mark_harmful", id=rule["id"])
    assert shown["maturity"] == "anti_pattern"
    assert "Avoid (did harm before): Answer in German" in await memory.block("hello")


@pytest.mark.parametrize(
    "content",
    ["hello, how are you", "Is it raining?", "You are the tester butler.", "As an AI I cannot"],
)
async def test_small_talk_questions_and_instructions_are_not_facts(
    memory: MemoryButler, content: str
) -> None:
    with pytest.raises(InvalidArguments, match="not a fact"):
        await memory.call("memory_store_fact", predicate="note", content=content)
    assert await memory.facts() == []


async def test_entities_are_resolved_merged_and_followed(memory: MemoryButler) -> None:
    made = await memory.call(
        "memory_entity_create", name="Alice Miller", aliases=["Ali"], metadata={"city": "Bonn"}
    )
    twin = await memory.call("memory_entity_create", name="Alice Meyer")
    await memory.call(
        "memory_store_fact", entity_id=twin["id"], predicate="works_at", content="Acme"
    )

    async def matches(name: str, context: str = "") -> list[tuple[str, str]]:
        found = await memory.call("memory_entity_resolve", name=name, context=context)
        return [(match["name"], match["match"]) for match in found["matches"]]

    assert (await matches("alice miller"))[0] == ("Alice Miller", "exact")
    assert (await matches("Ali"))[0] == ("Alice Miller", "alias")
    assert {name for name, why in await matches("Alice") if why == "prefix"} == {
        "Alice Miller",
        "Alice Meyer",
    }
    assert (await matches("Alice", "the one from Bonn"))[0][0] == "Alice Miller"
    assert (await matches("Alise Miler"))[0] == ("Alice Miller", "fuzzy")
    merged = await memory.call("memory_entity_merge", keep=made["id"], merge=twin["id"])
    assert merged["facts_moved"] == 1
    kept = await memory.call("memory_entity_get", id=twin["id"])  # the old id still leads there
    assert (kept["id"], kept["aliases"]) == (made["id"], ["Ali", "Alice Meyer"])
    assert [fact["content"] for fact in kept["facts"]] == ["Acme"]
    await memory.call("memory_entity_update", id=made["id"], name="Alice M.", aliases=[])
    assert (await memory.call("memory_entity_get", id=made["id"]))["name"] == "Alice M."


async def test_correction_wins_and_keeps_its_source(memory: MemoryButler) -> None:
    wrong = await memory.call(
        "memory_store_fact", at=NOW - DAY, predicate="birthday", content="4 May"
    )
    request = message_of()
    async with memory.inner.session(request=request) as session:
        right = await session.call("memory_correct", {"id": wrong["id"], "content": "5 May"})
    (fact,) = await memory.facts(validity="active")
    assert (fact["content"], fact["request_id"]) == ("5 May", request.request_id)
    assert json.loads(fact["metadata"]) == {"corrects": wrong["id"]}
    shown = await memory.call("memory_get", id=right["id"])
    assert [(h["content"], h["validity"]) for h in shown["history"]] == [("4 May", "retracted")]


async def test_episode_of_a_session_is_stored_once_and_never_consolidated(
    memory: MemoryButler,
) -> None:
    async with memory.session() as session:
        first = await session.call("memory_store_episode", {"content": "We planned the trip"})
        again = await session.call("memory_store_episode", {"content": "We planned the trip!"})
    assert (first["status"], again["status"]) == ("stored", "known")
    (row,) = await memory.inner.rows("SELECT consolidation FROM memory_episodes")
    assert row["consolidation"] == "skipped"


async def test_unknown_ids_are_typed_errors(memory: MemoryButler) -> None:
    nobody = "00000000-0000-7000-8000-000000000000"
    for tool, arguments in (
        ("memory_get", {"id": nobody}),
        ("memory_confirm", {"id": nobody}),
        ("memory_mark_helpful", {"id": nobody}),
        ("memory_entity_get", {"id": nobody}),
    ):
        with pytest.raises(NotFound):
            await memory.call(tool, **arguments)
