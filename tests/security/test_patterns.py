"""No pattern of ``re`` in the source may take more than linear time through repetition in repetition.

Patterns are read from the source. One that a call computes at run time must be built from constants of its
module. RE2 takes linear time for every pattern and is not checked.
"""

from __future__ import annotations

import ast
import importlib
import re
import re._constants as sre  # type: ignore[import-not-found]
import re._parser as sre_parser  # type: ignore[import-not-found]
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import butlers

SOURCE = Path(butlers.__file__).parent
CALLS = {"compile", "search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn"}
# Patterns that only read text of our own, with the reason.
OWN_TEXT = {
    "butlers.secrets.import_file._LINE": "reads the owner's own file of secrets",
}
# Patterns that are linear for a reason that the check does not see.
SHOWN_LINEAR = {
    "butlers.runtimes.cli._VERSION": "nothing follows the second repetition, so it never fails",
    "butlers.runtimes.gemini.transcript._NO_KEY": "begins at the start of a line only",
}
UNBOUNDED = 1_000  # repetitions; fewer are a constant factor
ALL = frozenset(range(0x250))  # code points that sets are compared by


def problems(pattern: str, flags: int = 0) -> list[str]:
    """Return the nested and adjacent unbounded repetitions of a pattern."""
    return list(_problems(sre_parser.parse(pattern, flags)))


def _problems(parsed: Any) -> Iterator[str]:
    open_repeats: list[frozenset[int]] = []  # sets that the text before this place may go on in
    for item in parsed:
        operator, argument = item
        if _is_unbounded(item):
            body = argument[2]
            first, inner = _first_of(body), list(_open_repeats(body))
            if any(not _is_separated(body, one) for one in inner):
                yield f"nested repetition: {item}"
            if operator is not sre.POSSESSIVE_REPEAT:
                if any(before & first for before in open_repeats):
                    yield f"adjacent repetition: {item}"
                taken = _set_of(body)
                open_repeats = [*open_repeats, taken] if argument[0] == 0 else [taken]
            yield from _problems(body)
            continue
        for inner_part in _parts(item):
            yield from _problems(inner_part)
        if not _is_nullable(item):
            one = _set_of([item])
            # A mandatory character outside of the repeated set ends the choice.
            open_repeats = [before for before in open_repeats if _is_inside(one, before)]


def _is_inside(one: frozenset[int], before: frozenset[int]) -> bool:
    return bool(one) and one <= before


def _is_unbounded(item: Any) -> bool:
    operator, argument = item
    repeats = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)
    return operator in repeats and (argument[1] is sre.MAXREPEAT or argument[1] >= UNBOUNDED)


def _open_repeats(parsed: Any) -> Iterator[Any]:
    """Yield the unbounded repetitions inside that one character of lookahead does not end."""
    for position, item in enumerate(parsed):
        if _is_unbounded(item) and item[0] is not sre.POSSESSIVE_REPEAT:
            after = parsed[position + 1 :]
            ends = any(not _is_nullable(one) for one in after)
            if not ends or _first_of(after) & _first_of(item[1][2]):
                yield item
        for part in _parts(item):
            yield from _open_repeats(part)


def _first_of(parsed: Any) -> frozenset[int]:
    """Return the characters that the parsed pattern can begin with."""
    found: frozenset[int] = frozenset()
    for item in parsed:
        ways = list(_parts(item)) if item[0] not in (sre.ASSERT, sre.ASSERT_NOT) else []
        found |= frozenset().union(*map(_first_of, ways)) if ways else _set_of([item])
        if not _is_nullable(item):
            break
    return found


def _is_separated(body: Any, inner: Any) -> bool:
    """Return True if each round has a mandatory character that the inner repetition cannot take."""
    if len(body) == 1 and body[0][0] is sre.SUBPATTERN:
        return _is_separated(body[0][1][3], inner)
    if len(body) == 1 and body[0][0] is sre.BRANCH:  # every alternative that has the repetition
        return all(
            _is_separated(way, inner)
            for way in body[0][1][1]
            if any(one is inner for one in _open_repeats(way))
        ) and _starts_differ(body[0][1][1])
    taken = _set_of(inner[1][2])
    mandatory = (item for item in body if not _is_nullable(item) and not _is_unbounded(item))
    return any((found := _set_of([item])) and not found & taken for item in mandatory)


def _starts_differ(ways: Any) -> bool:
    starts = [_first_of(way) for way in ways]
    return all(not one & two for n, one in enumerate(starts) for two in starts[n + 1 :])


def _parts(item: Any) -> Iterator[Any]:
    operator, argument = item
    if operator is sre.SUBPATTERN:
        yield argument[3]
    elif operator is sre.BRANCH:
        yield from argument[1]
    elif operator in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        yield argument[2]
    elif operator is sre.ATOMIC_GROUP:
        yield argument
    elif operator in (sre.ASSERT, sre.ASSERT_NOT):
        yield argument[1]


def _is_nullable(item: Any) -> bool:
    operator, argument = item
    if operator in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):
        return True
    if operator in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return argument[0] == 0 or all(map(_is_nullable, argument[2]))
    if operator is sre.SUBPATTERN:
        return all(map(_is_nullable, argument[3]))
    if operator is sre.BRANCH:
        return any(all(map(_is_nullable, way)) for way in argument[1])
    return False


def _set_of(parsed: Any) -> frozenset[int]:
    """Return all characters that the parsed pattern can take."""
    found: frozenset[int] = frozenset()
    for operator, argument in parsed:
        if operator is sre.LITERAL:
            found |= {argument}
        elif operator is sre.NOT_LITERAL:
            found |= ALL - {argument}
        elif operator is sre.ANY:
            found |= ALL
        elif operator is sre.IN:
            found |= _class(argument)
        elif operator not in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):
            for part in _parts((operator, argument)):
                found |= _set_of(part)
    return found


def _class(items: Any) -> frozenset[int]:
    written = "".join(_class_text(item) for item in items if item[0] is not sre.NEGATE)
    negated = any(item[0] is sre.NEGATE for item in items)
    matcher = re.compile(f"[{'^' if negated else ''}{written}]")
    return frozenset(code for code in ALL if matcher.match(chr(code)))


_CATEGORIES = {
    sre.CATEGORY_DIGIT: r"\d", sre.CATEGORY_NOT_DIGIT: r"\D",
    sre.CATEGORY_SPACE: r"\s", sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_WORD: r"\w", sre.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip


def _class_text(item: Any) -> str:
    operator, argument = item
    if operator is sre.CATEGORY:
        return _CATEGORIES[argument]
    if operator is sre.RANGE:
        return f"\\U{argument[0]:08x}-\\U{argument[1]:08x}"
    return f"\\U{argument:08x}"


def _modules() -> list[str]:
    files = [file for file in SOURCE.rglob("*.py") if "built_in" not in file.parts]
    named = (file.relative_to(SOURCE.parent).with_suffix("").parts for file in files)
    return sorted(".".join(parts).removesuffix(".__init__") for parts in named)


def _calls(module: str) -> Iterator[tuple[str, ast.Call]]:
    """Yield each call of ``re`` in a module, with the variable that it is assigned to."""
    file = SOURCE.parent / Path(*module.split("."))
    source = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
    tree = ast.parse(source.read_text())
    names = {
        id(node.value): ast.unparse(node.targets[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "re"
            and node.func.attr in CALLS
        ):
            yield names.get(id(node), f"line {node.lineno}"), node


def _compiled(module: str) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Yield the compiled patterns of a module's variables, also inside of tuples and dicts."""

    def below(value: object) -> Iterator[re.Pattern[Any]]:
        if isinstance(value, re.Pattern):
            yield value
        elif isinstance(value, dict):
            for item in value.values():
                yield from below(item)
        elif isinstance(value, tuple | list):
            for item in value:
                yield from below(item)

    for name, value in vars(importlib.import_module(module)).items():
        yield from ((f"{module}.{name}", pattern) for pattern in below(value))


MODULES = [module for module in _modules() if any(True for _ in _calls(module))]


@pytest.mark.parametrize("module", MODULES)
def test_patterns_have_no_nested_or_adjacent_repetition(module: str) -> None:
    found = {
        f"{name}: {problem}"
        for name, pattern in _compiled(module)
        if name not in OWN_TEXT and name not in SHOWN_LINEAR and isinstance(pattern.pattern, str)
        for problem in problems(pattern.pattern, pattern.flags & ~re.DEBUG)
    }
    found |= {
        f"{module} {name}: {problem}"
        for name, call in _calls(module)
        if call.args and isinstance(call.args[0], ast.Constant) and call.func.attr != "compile"  # type: ignore[attr-defined]
        for problem in problems(str(call.args[0].value))
    }
    assert found == set()


@pytest.mark.parametrize("module", MODULES)
def test_patterns_are_constants_of_their_module(module: str) -> None:
    """A pattern that is built inside of a function from its arguments could not be checked."""
    hidden = [
        name
        for name, call in _calls(module)
        if call.func.attr != "compile" and not isinstance(call.args[0], ast.Constant)  # type: ignore[attr-defined]
    ]
    assert hidden == []


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+",
        r"(?:a*)*b",
        r"\s*\s*",
        r"[ab]+[bc]*d",
        r"(?:\w+\s*)*x",
        r"(?:a|a+)*",
        r"x\s*,?\s*y",
        r".*.*",
    ],
)
def test_repetition_in_repetition_is_found(pattern: str) -> None:
    assert problems(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"[a-z]+(?:-[a-z0-9]+)*", r"\s*=\s*", r"(?:\w+\.)+\w", r"(?:[^\"\\]|\\.)*+\"", r"a{1,9}a{1,9}",
        r"\s*(?:(?:,|and)\s*)?x", r"(?:[ \t]*\n)*---", r"a++a*",
    ],
)  # fmt: skip
def test_separated_repetition_is_allowed(pattern: str) -> None:
    assert problems(pattern) == []


def test_every_exception_exists() -> None:
    known = {name for module in MODULES for name, _pattern in _compiled(module)}
    assert {*OWN_TEXT, *SHOWN_LINEAR} <= known
