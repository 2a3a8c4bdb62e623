from __future__ import annotations

import time
from uuid import RFC_4122, UUID

from butlers.domain.clock import uuid7


def milliseconds(made: UUID) -> int:
    return made.int >> 80


def test_uuid7_has_version_7() -> None:
    for made in (uuid7() for _ in range(200)):
        assert made.version == 7
        assert made.variant == RFC_4122


def test_uuid7_contains_its_time() -> None:
    before = time.time_ns() // 1_000_000
    made = uuid7()
    assert before <= milliseconds(made) <= time.time_ns() // 1_000_000


def test_uuid7_sorts_by_time() -> None:
    made: list[UUID] = []
    while len(made) < 5:
        fresh = uuid7()
        if not made or milliseconds(fresh) > milliseconds(made[-1]):
            made.append(fresh)
    assert sorted(made) == made
    assert sorted(made, key=str) == made


def test_uuid7_values_are_unique() -> None:
    assert len({uuid7() for _ in range(10_000)}) == 10_000


def test_uuid7_values_of_one_process_keep_their_order() -> None:
    made = [uuid7() for _ in range(20_000)]
    assert made == sorted(made)
