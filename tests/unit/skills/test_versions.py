"""Version ranges and requirements."""

from __future__ import annotations

import pytest

from butlers.skills.versions import newest_first, parse_range, parse_requirement


@pytest.mark.parametrize(
    ("written", "inside", "outside"),
    [
        ("1.2.3", ["1.2.3"], ["1.2.4", "1.2.2"]),
        ("=1.2.3", ["1.2.3"], ["1.2.4"]),
        ("^1.2.3", ["1.2.3", "1.9.0"], ["1.2.2", "2.0.0"]),
        ("^0.2.3", ["0.2.3", "0.2.9"], ["0.3.0", "0.2.2"]),
        ("^0.0.3", ["0.0.3"], ["0.0.4"]),
        ("^1", ["1.0.0", "1.9.9"], ["2.0.0", "0.9.0"]),
        ("^0", ["0.0.1", "0.9.0"], ["1.0.0"]),
        ("~1.2.3", ["1.2.3", "1.2.9"], ["1.3.0"]),
        ("~1", ["1.0.0", "1.9.0"], ["2.0.0"]),
        ("1.x", ["1.0.0", "1.9.0"], ["2.0.0"]),
        ("1.2.*", ["1.2.0", "1.2.9"], ["1.3.0"]),
        ("*", ["0.0.0", "99.0.0"], []),
        (">=1.0.0 <2.0.0", ["1.0.0", "1.9.9"], ["2.0.0", "0.9.9"]),
        (">= 1, < 3", ["1.0.0", "2.9.9"], ["3.0.0"]),
        (">1.2", ["1.3.0"], ["1.2.9"]),
        ("<=1.2", ["1.2.9"], ["1.3.0"]),
        ("1.0.0 || ^3", ["1.0.0", "3.1.0"], ["1.0.1", "2.0.0"]),
        (">=1 !=1.5.0", ["1.4.0", "1.5.1"], ["1.5.0"]),
    ],
)
def test_range_matches_versions(written: str, inside: list[str], outside: list[str]) -> None:
    found = parse_range(written)
    assert found is not None
    assert [version for version in inside if not found.holds(version)] == []
    assert [version for version in outside if found.holds(version)] == []


@pytest.mark.parametrize(
    "written", ["", " ", "new", "1.2.3.4", "^", ">=1 ||", "1.0.0-rc1", "x" * 300, "^1abc"]
)
def test_invalid_range_is_none(written: str) -> None:
    assert parse_range(written) is None


@pytest.mark.parametrize("written", ["", "Id", "--", "a@", "a@@1", "../a", "a b", "a@x/y"])
def test_invalid_requirement_is_none(written: str) -> None:
    assert parse_requirement(written) is None


def test_a_requirement_is_exact_a_range_or_open() -> None:
    exact, ranged, open_ = (parse_requirement(written) for written in ("a@1.2.3", "a@^1", "a"))
    assert exact is not None
    assert ranged is not None
    assert open_ is not None
    assert (exact.exact, str(exact)) == ("1.2.3", "a@1.2.3")
    assert (ranged.exact, str(ranged)) == (None, "a@^1")
    assert (open_.range, str(open_)) == (None, "a")
    assert [found.holds("1.2.4") for found in (exact, ranged, open_)] == [False, True, True]


def test_versions_are_ordered_by_number() -> None:
    assert newest_first(["1.9.0", "1.10.0", "0.1.0"]) == ("1.10.0", "1.9.0", "0.1.0")
