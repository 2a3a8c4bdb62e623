"""Find and sort modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from butlers.config.butler import ButlerConfig, load_butler_config
from butlers.config.settings import Settings
from butlers.domain.errors import ConfigInvalid
from butlers.modules.base import Module, UnloadableModule
from butlers.modules.registry import (
    _register_roster_modules,
    load_module,
    load_modules,
    sort_modules,
)

TWO = """
from butlers.sdk import Module

class Base(Module):
    '''Abstract: it has no name.'''

class One(Base):
    name = "one"

class Two(Base):
    name = "two"
    dependencies = ["one"]
"""


def module_code(name: str, dependencies: Sequence[str] = ()) -> str:
    return (
        f"from butlers.sdk import Module\nclass Made(Module):\n    name = {name!r}\n"
        f"    dependencies = {list(dependencies)!r}\n"
    )


def write_butler(
    folder: Path, modules: Sequence[str], packages: Mapping[str, str], top: str | None = None
) -> ButlerConfig:
    (folder / "modules").mkdir(parents=True)
    sections = "".join(f"[modules.{name}]\n" for name in modules)
    (folder / "butler.toml").write_text(f'[butler]\nname = "tester"\nport = 0\n{sections}')
    if top is not None:
        (folder / "modules" / "__init__.py").write_text(top)
    for name, code in packages.items():
        (folder / "modules" / name).mkdir()
        (folder / "modules" / name / "__init__.py").write_text(code)
    return load_butler_config(folder, Settings.from_environ({}))


def names(modules: Sequence[Module]) -> list[str]:
    return [module.name for module in modules]


def test_several_modules_of_one_package_are_found(tmp_path: Path) -> None:
    config = write_butler(tmp_path, ["two", "one"], {}, top=TWO)
    assert names(load_modules(config)) == ["one", "two"]
    assert list(_register_roster_modules(tmp_path, "tester")) == ["one", "two"]


@pytest.mark.parametrize("top", [None, '"""A package."""\n'])
def test_module_package_is_found_by_its_folder(tmp_path: Path, top: str | None) -> None:
    packages = {"far": module_code("far"), "near": module_code("near", ["far"])}
    config = write_butler(tmp_path, ["near", "far"], packages, top)
    assert names(load_modules(config)) == ["far", "near"]


def test_unnamed_package_is_not_imported(tmp_path: Path) -> None:
    packages = {"good": module_code("good"), "bad": "raise SystemError('imported')\n"}
    config = write_butler(tmp_path, ["good"], packages)
    assert names(load_modules(config)) == ["good"]


def test_modules_may_import_from_the_butlers_folder(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").write_text("LABEL = 'seven'\n")
    code = "from ...tools import LABEL\n" + module_code("deep").replace("'deep'", "'deep'")
    config = write_butler(tmp_path, ["deep"], {"deep": code + "    label = LABEL\n"})
    (module,) = load_modules(config)
    assert module.label == "seven"  # type: ignore[attr-defined]


def test_own_module_overrides_a_shared_one(
    tmp_path: Path,
) -> None:
    shared = tmp_path / "shared"
    for name in ("weather", "tides"):
        (shared / name).mkdir(parents=True)
        (shared / name / "__init__.py").write_text(
            module_code(name).replace("Made", f"Shared{name.title()}")
        )
    config = write_butler(
        tmp_path / "butler", ["weather", "tides"], {"tides": module_code("tides")}
    )
    with capture_logs() as log:
        weather, tides = load_modules(config, shared=shared)
    assert type(weather).__module__ == "butlers.modules.weather"
    assert type(weather).__name__ == "SharedWeather"
    assert type(tides).__name__ == "Made"
    assert [(line["event"], line["module"]) for line in log] == [("module overridden", "tides")]


def test_broken_package_fails_the_modules_it_may_define(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "weather").mkdir(parents=True)
    (shared / "weather" / "__init__.py").write_text(module_code("weather"))
    config = write_butler(
        tmp_path / "butler", ["mine", "weather"], {}, top="import nothing_there\n"
    )
    mine, weather = load_modules(config, shared=shared)
    assert isinstance(mine, UnloadableModule)
    assert "nothing_there" in str(mine.error)
    assert not isinstance(weather, UnloadableModule)


@pytest.mark.parametrize(
    ("modules", "packages", "line", "reason", "hint"),
    [
        (
            ["wether"],
            {"weather": []},
            4,
            "unknown module 'wether'; did you mean 'weather'?",
            "weather",
        ),
        (
            ["zzz"],
            {},
            4,
            "unknown module 'zzz'",
            "available modules: approvals, calendar",
        ),
        (["a", "b"], {"a": [], "b": ["c"]}, 5, "the b module requires c", "add [modules.c]"),
        (["b", "email"], {"b": ["emial"], "email": []}, 4, "requires emial", "'email'"),
        (["a", "b"], {"a": ["b"], "b": ["a"]}, 4, "circular dependency: a → b → a", None),
        (["a"], {"a": ["a"]}, 4, "circular dependency: a → a", None),
        (
            ["x", "a", "b", "c"],
            {"x": ["a"], "a": ["b"], "b": ["c"], "c": ["a"]},
            5,
            "circular dependency: a → b → c → a",
            None,
        ),
    ],
)
def test_invalid_graph_names_file_line_and_hint(
    tmp_path: Path,
    modules: list[str],
    packages: dict[str, list[str]],
    line: int,
    reason: str,
    hint: str | None,
) -> None:
    code = {name: module_code(name, needs) for name, needs in packages.items()}
    config = write_butler(tmp_path, modules, code)
    with pytest.raises(ConfigInvalid) as refused:
        load_modules(config)
    assert refused.value.message.startswith(f"{config.file}:{line}: ")
    assert reason in refused.value.message
    assert (hint or "") in (refused.value.hint or "")


def test_duplicate_module_names_are_rejected(tmp_path: Path) -> None:
    config = write_butler(tmp_path, ["one"], {}, top=TWO.replace('"two"', '"one"'))
    (found,) = load_modules(config)
    assert isinstance(found, UnloadableModule)
    assert "two modules named 'one'" in str(found.error)


def test_load_module_returns_the_module_or_raises_the_reason(tmp_path: Path) -> None:
    write_butler(tmp_path, [], {"good": module_code("good"), "torn": "1 / 0\n"})
    assert load_module(tmp_path, "good").name == "good"
    with pytest.raises(ConfigInvalid, match="did you mean 'good'"):
        load_module(tmp_path, "goad")
    with pytest.raises(ConfigInvalid, match="ZeroDivisionError"):
        load_module(tmp_path, "torn")


class _Node(Module):
    name = ""

    def __init__(self, name: str, dependencies: Sequence[str]) -> None:
        self.name = name
        self.dependencies = dependencies  # type: ignore[misc]


@given(st.data())
def test_sort_puts_dependencies_directly_before_dependents(
    data: st.DataObject,
) -> None:
    count = data.draw(st.integers(0, 12))
    rank = data.draw(st.permutations(range(count)))
    edges = {
        number: data.draw(st.sets(st.sampled_from(rank[:place]))) if place else set()
        for place, number in enumerate(rank)
    }
    nodes = [_Node(str(number), [str(n) for n in sorted(edges[number])]) for number in range(count)]
    config = ButlerConfig.model_construct(name="tester", directory=Path("/nowhere"))
    order = names(sort_modules(nodes, config))
    assert sorted(order) == sorted(names(nodes))
    for node in nodes:
        assert all(order.index(needed) < order.index(node.name) for needed in node.dependencies)
    if all(other < number for number, others in edges.items() for other in others):
        assert order == names(nodes)  # already right: nothing is moved
