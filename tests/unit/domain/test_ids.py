from __future__ import annotations

import time
from uuid import RFC_4122, UUID

from butlers.domain.clock import uuid7


def milliseconds(made: UUID) -> int:
    return made.int >> 80


def test_it_is_a_uuid_of_version_7() -> None:
    for made in (uuid7() for _ in range(200)):
        assert made.version == 7
        assert made.variant == RFC_4122


def test_it_carries_the_time_it_was_made() -> None:
    before = time.time_ns() // 1_000_000
    made = uuid7()
    assert before <= milliseconds(made) <= time.time_ns() // 1_000_000


def test_it_sorts_by_time() -> None:
    made: list[UUID] = []
    while len(made) < 5:
        fresh = uuid7()
        if not made or milliseconds(fresh) > milliseconds(made[-1]):
            made.append(fresh)
    assert sorted(made) == made
    assert sorted(made, key=str) == made


def test_no_two_are_the_same() -> None:
    assert len({uuid7() for _ in range(10_000)}) == 10_000


def test_those_of_one_process_sort_in_the_order_they_were_made() -> None:
    made = [uuid7() for _ in range(20_000)]
    assert made == sorted(made)
