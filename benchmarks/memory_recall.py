"""Recall of memory_search on LoCoMo: the share of a question's evidence turns among the first results.

Six conversations of LoCoMo (Maharana et al., 2024), read from ``../shared/data/locomo-dev.zip`` where that
file is there. Each conversation is imported as episodes into a database of its own and asked its questions
of categories 1 to 4 (several turns, time, open, one turn). The conversations in HELD_OUT took no part in
choosing or fitting anything. No model is called; what runs is the engine behind ``memory_search``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import math
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog

from benchmarks.helpers import ROOT, new_home, open_database
from butlers.db.database import Database
from butlers.db.embedded import EmbeddedPostgres
from butlers.db.migrations import find_chain, migrate, shipped_versions
from butlers.domain.provenance import Provenance, Trust
from butlers.modules.memory.embedding.embedder import shared_embedder
from butlers.modules.memory.embedding.vectors import VectorStore
from butlers.modules.memory.items import ItemKind, ItemSource
from butlers.modules.memory.search.engine import SearchEngine
from butlers.modules.memory.search.fusion import PARTS, WEIGHTS, Scored
from butlers.modules.memory.search.query import SearchRequest
from butlers.modules.memory.store.entities import create_entity
from butlers.modules.memory.store.episodes import NewEpisode, insert_episode

DATA = ROOT.parent / "shared" / "data" / "locomo-dev.zip"
HELD_OUT = ("42", "44")
CATEGORIES = {1: "several turns", 2: "time", 3: "open", 4: "one turn"}
DEPTHS = (5, 10)
CANDIDATES = 400


@dataclass(frozen=True, slots=True)
class Question:
    conversation: str
    text: str
    category: int
    evidence: frozenset[UUID]


@dataclass(frozen=True, slots=True)
class Asked:
    question: Question
    scored: list[Scored]

    def recall(self, depth: int, weights: Mapping[str, float] = WEIGHTS) -> float:
        """Return the share of evidence in the first results, with these weights."""
        order = sorted(self.scored, key=lambda one: -rescored(one, weights))
        found = {one.candidate.id for one in order[:depth]}
        return len(found & self.question.evidence) / len(self.question.evidence)


def rescored(one: Scored, weights: Mapping[str, float]) -> float:
    """Return the score that a candidate would have with other weights."""
    return sum(part / WEIGHTS[name] * weights[name] for name, part in one.parts.items())


def run(options: argparse.Namespace) -> None:
    if not DATA.is_file():
        print(f"skipped: {DATA} is not there")
        return
    with new_home() as home, EmbeddedPostgres(home, durable=False) as server:
        asked = asyncio.run(_ask_all(server, captions=options.captions))
    if options.fit:
        _print_fit(asked)
    _print_recall(asked)
    _print_ablation(asked)


async def _ask_all(server: EmbeddedPostgres, *, captions: bool) -> list[Asked]:
    vectors = VectorStore(shared_embedder())
    asked: list[Asked] = []
    with zipfile.ZipFile(DATA) as archive:
        for name in sorted(archive.namelist()):
            talk = json.loads(archive.read(name))
            database = await open_database(server, f"talk_{Path(name).stem}")
            try:
                asked += await _ask(database, vectors, Path(name).stem, talk, captions)
            finally:
                await database.close()
    return asked


async def _ask(
    database: Database, vectors: VectorStore, name: str, talk: dict[str, Any], captions: bool
) -> list[Asked]:
    chain = find_chain("memory", shipped_versions())
    assert chain is not None
    await migrate(database.login, [chain])
    turns, now = await _import(database, name, talk, captions)
    await vectors.prepare(database, 100_000)
    engine = SearchEngine(database, vectors)
    asked = []
    for question in _questions(name, talk, turns):
        request = SearchRequest(question.text, now, (ItemKind.EPISODE,), limit=CANDIDATES)
        scored, _ = await engine.candidates(request)
        asked.append(Asked(question, scored))
    return asked


async def _import(
    database: Database, name: str, talk: dict[str, Any], captions: bool
) -> tuple[dict[str, UUID], datetime]:
    turns: dict[str, UUID] = {}
    now = datetime(2000, 1, 1, tzinfo=UTC)
    async with database.transaction() as connection:
        for number, session in _sessions(talk):
            now = _moment(talk[f"session_{number}_date_time"])
            for turn in session:
                source = ItemSource("bench", Provenance(Trust.OWNER, turn["speaker"]), now)
                text = turn["text"]
                if captions and turn.get("blip_caption"):
                    text = f"{text} [photo: {turn['blip_caption']}]"
                episode = NewEpisode(text, turn["speaker"], f"{name}:{number}")
                found = await insert_episode(connection, source, episode)
                assert found is not None
                turns[turn["dia_id"]] = found
        for speaker in (talk["speaker_a"], talk["speaker_b"]):
            source = ItemSource("bench", Provenance(Trust.OWNER, speaker), now)
            await create_entity(connection, source, speaker)
    return turns, now


def _sessions(talk: Mapping[str, Any]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    number = 1
    while f"session_{number}" in talk:
        yield number, talk[f"session_{number}"]
        number += 1


def _moment(text: str) -> datetime:
    """Return the time of, for example, "1:10 pm on 27 March, 2023"."""
    return datetime.strptime(text, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)


def _questions(name: str, talk: Mapping[str, Any], turns: Mapping[str, UUID]) -> Iterator[Question]:
    for entry in talk["qa"]:
        named = re.findall(r"D\d+:\d+", " ".join(entry.get("evidence", [])))
        evidence = frozenset(turns[turn] for turn in named if turn in turns)
        if entry["category"] in CATEGORIES and evidence:
            yield Question(name, entry["question"], entry["category"], evidence)


# -- report ------------------------------------------------------------------------------------------


def _mean(asked: Iterable[Asked], depth: int, weights: Mapping[str, float] = WEIGHTS) -> float:
    values = [one.recall(depth, weights) for one in asked]
    return sum(values) / len(values) if values else math.nan


def _groups(asked: Sequence[Asked]) -> Iterator[tuple[str, list[Asked]]]:
    yield "all", list(asked)
    for label, held in (("fitted on", False), ("held out", True)):
        yield label, [one for one in asked if (one.question.conversation in HELD_OUT) is held]
    for category, label in CATEGORIES.items():
        yield f"category {category}: {label}", [a for a in asked if a.question.category == category]


def _print_recall(asked: Sequence[Asked]) -> None:
    print(
        f"{'recall of evidence turns':<32}{'questions':>10}"
        + "".join(f"{f'@{d}':>8}" for d in DEPTHS)
    )
    for label, group in _groups(asked):
        values = "".join(f"{_mean(group, depth):8.3f}" for depth in DEPTHS)
        print(f"{label:<32}{len(group):>10}{values}")


def _print_ablation(asked: Sequence[Asked]) -> None:
    print("\nwithout one part (all, held out):")
    held = [one for one in asked if one.question.conversation in HELD_OUT]
    for part, features in PARTS.items():
        weights = {name: 0.0 if name in features else value for name, value in WEIGHTS.items()}
        values = [f"{_mean(group, 10, weights):8.3f}" for group in (asked, held)]
        print(f"  {part:<20}{''.join(values)}")


# -- fitting -----------------------------------------------------------------------------------------


def _print_fit(asked: Sequence[Asked]) -> None:
    dev = [one for one in asked if one.question.conversation not in HELD_OUT]
    weights = fit(dev)
    print(json.dumps({name: round(value, 2) for name, value in weights.items()}, indent=1))
    for label, group in _groups(asked):
        print(
            f"  fitted: {label:<32}" + "".join(f"{_mean(group, d, weights):8.3f}" for d in DEPTHS)
        )


def fit(asked: Sequence[Asked], steps: int = 300, penalty: float = 0.005) -> dict[str, float]:
    """Return weights that make the evidence likely: softmax over candidates, with Adam."""
    import numpy as np

    names = [name for name in WEIGHTS if name != "confidence"]
    data = []
    for one in asked:
        rows = [[s.parts.get(n, 0.0) / WEIGHTS[n] for n in names] for s in one.scored]
        hits = [i for i, s in enumerate(one.scored) if s.candidate.id in one.question.evidence]
        if hits:
            data.append((np.array(rows), hits))
    weights, first, second = (np.zeros(len(names)) for _ in range(3))
    for step in range(1, steps + 1):
        gradient = penalty * weights
        for rows, hits in data:
            scores = rows @ weights
            chance = np.exp(scores - scores.max())
            chance /= chance.sum()
            gradient = gradient - (rows[hits].mean(0) - chance @ rows) / len(data)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        weights -= 0.05 * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return dict(zip(names, map(float, weights), strict=True)) | {"confidence": 1.0}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory_recall", description=__doc__)
    parser.add_argument(
        "--captions", action="store_true", help="add the captions of photos to turns"
    )
    parser.add_argument("--fit", action="store_true", help="fit the weights and print them")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    run(parser.parse_args())


if __name__ == "__main__":
    main()
