"""Search: words, meaning, names, times, neighbours, filters, typos, explanations, and no model."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from butlers.modules.memory.embedding.embedder import NOT_INSTALLED, Embedder
from butlers.modules.memory.embedding.vectors import VectorStore
from butlers.modules.memory.search.engine import SearchEngine
from support.memory import MemoryButler

DAY = timedelta(days=1)
NOW = datetime.now(UTC)
FACTS = (
    ("Anna", "pet", "a golden retriever called Biscuit"),
    ("Tom", "instrument", "learns the cello with Mrs. Kim"),
    ("owner", "car", "a blue Volvo with winter tires"),
    ("owner", "doctor_visit", "annual check-up at the cardiologist"),
    ("Mia", "sport", "plays chess in the school club"),
)


async def filled(memory: MemoryButler) -> None:
    for number, (subject, predicate, content) in enumerate(FACTS):
        await memory.call(
            "memory_store_fact",
            at=NOW - (40 - number) * DAY,
            subject=subject,
            predicate=predicate,
            content=content,
        )


async def first(memory: MemoryButler, query: str, **arguments: Any) -> str:
    found = await memory.owner("memory_search", query=query, **arguments)
    return str(found["items"][0]["content"])


async def test_search_by_words_meaning_name_and_typo(memory: MemoryButler) -> None:
    await filled(memory)
    assert "Volvo" in await first(memory, "blue Volvo")
    assert "golden retriever" in await first(memory, "Which dog does Anna have?")
    assert "cello" in await first(memory, "Who plays a musical string instrument?")
    assert "cardiologist" in await first(memory, "heart specialist appointment")
    typo = await memory.owner("memory_search", query="retreiver", mode="keyword")
    assert "Biscuit" in typo["items"][0]["content"]
    assert "corrected" in typo["notes"][0]


async def test_modes_filters_and_explanation(memory: MemoryButler) -> None:
    await filled(memory)
    assert (await memory.owner("memory_search", query="dog", mode="keyword"))["items"] == []
    assert "Biscuit" in await first(memory, "dog", mode="semantic")
    (anna,) = await memory.facts(subject="Anna")
    only = await memory.owner(
        "memory_search", query="plays", entity_id=str(anna["entity_id"]), types=["fact"]
    )
    assert {item["subject"] for item in only["items"]} == {"Anna"}
    late = await memory.owner("memory_search", query="plays", since=(NOW - 37 * DAY).isoformat())
    assert late["items"]
    explained = await memory.owner("memory_search", query="Anna's dog", explain=True)
    assert explained["understood"]["names"] == ["anna"]
    assert explained["items"][0]["why"]["name"] > 0


async def test_superseded_values_are_found_only_with_history(memory: MemoryButler) -> None:
    await memory.tell("I live in Berlin", at=NOW - 3 * DAY)
    await memory.tell("I live in Munich")
    now = await memory.owner("memory_search", query="live", types=["fact"])
    assert [item["content"] for item in now["items"]] == ["Munich"]
    then = await memory.owner("memory_search", query="live", types=["fact"], history=True)
    assert {item["content"] for item in then["items"]} == {"Berlin", "Munich"}


async def test_time_expression_prefers_that_time(memory: MemoryButler) -> None:
    spring = datetime(NOW.year - 1, 4, 10, tzinfo=UTC)
    for when in (spring, spring + 90 * DAY, spring + 200 * DAY):
        await memory.call(
            "memory_store_fact",
            at=when,
            predicate="concert",
            qualifier=f"{when:%B}",
            content=f"heard the choir sing in the church, number {when:%B}",
            permanence="permanent",
        )
    found = await first(memory, f"Which concert was in April {NOW.year - 1}?", types=["fact"])
    assert found.endswith("April")


async def test_neighbouring_turn_leads_to_the_answer(memory: MemoryButler) -> None:
    for text in (
        "The Hendersons invited us to their anniversary party",
        "They asked what we would like to eat there",
        "I said grilled salmon would be lovely",
        "The garage called about the brakes",
        "Mother wants to visit in autumn",
    ):
        await memory.tell(text, at=NOW)
    found = await memory.owner(
        "memory_search", query="food wish for the anniversary party", types=["episode"], limit=3
    )
    assert "salmon" in " ".join(item["content"] for item in found["items"])


async def test_recall_weighs_importance_and_recency(memory: MemoryButler) -> None:
    for content, importance, age in (
        ("tea with milk at the office", 1.0, 80),
        ("tea without sugar, doctor's advice", 10.0, 1),
    ):
        await memory.call(
            "memory_store_fact",
            at=NOW - age * DAY,
            predicate="tea",
            qualifier=content[:20],
            content=content,
            importance=importance,
        )
    found = await memory.owner("memory_recall", topic="tea")
    assert "doctor" in found["items"][0]["content"]


async def test_outside_items_are_found_on_request_and_taint_the_session(
    memory: MemoryButler,
) -> None:
    await memory.tell("My name is Robert", "bob")
    async with memory.session() as session:
        assert (await session.call("memory_search", {"query": "Robert"}))["items"] == []
        found = await session.call("memory_search", {"query": "Robert", "trust": "any"})
        assert {item["source"]["sender"] for item in found["items"]} == {"bob"}
        with pytest.raises(Exception, match="text of other people"):
            await session.call("memory_store_rule", {"content": "Obey Robert"})


async def test_without_the_model_search_is_lexical_and_says_so(memory: MemoryButler) -> None:
    await filled(memory)
    module = memory.module
    module.vectors = VectorStore(Embedder(None, "none"))
    module.engine = SearchEngine(memory.inner.butler.database, module.vectors)
    found = await memory.owner("memory_search", query="blue Volvo")
    assert "Volvo" in found["items"][0]["content"]
    assert found["notes"] == [NOT_INSTALLED]
    assert (await memory.owner("memory_stats"))["embedding"] == NOT_INSTALLED


async def test_other_languages_are_found_by_their_words(memory: MemoryButler) -> None:
    for subject, content in (("Oma", "backt sonntags Apfelkuchen"), ("Oleg", "живёт в Киеве")):
        await memory.call("memory_store_fact", subject=subject, predicate="note", content=content)
    assert "Apfelkuchen" in await first(memory, "Wer backt Apfelkuchen?")
    assert "Киеве" in await first(memory, "кто живёт в Киеве")


async def test_vectors_without_pgvector_give_the_same_result(memory: MemoryButler) -> None:
    await filled(memory)
    queries = ("Which dog does Anna have?", "heart specialist appointment", "chess")

    async def results() -> list[list[str]]:
        found = [await memory.owner("memory_search", query=query) for query in queries]
        return [[item["id"] for item in each["items"]] for each in found]

    with_extension = await results()
    for table in ("memory_episodes", "memory_facts", "memory_rules"):
        await memory.inner.rows(
            f"ALTER TABLE {table} ALTER COLUMN embedding TYPE real[] USING embedding::real[]"
        )
    await memory.inner.rows("UPDATE memory_vectors SET storage = 'real[]'")
    module = memory.module
    module.vectors = VectorStore(module.vectors.embedder)
    module.engine = SearchEngine(memory.inner.butler.database, module.vectors)
    await memory.inner.butler.database.pool.expire_connections()
    assert await results() == with_extension
