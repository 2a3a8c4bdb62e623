"""Interface of a module for third-party authors."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from butlers.domain.module import FailurePhase, ModuleFailed, ModuleHealth, ModuleState
from butlers.sdk import SESSIONS, CallContext, Module, ModuleConfig, ToolMeta, ToolRegistrar, tool


@tool(callers=SESSIONS)
async def diary_write(ctx: CallContext, text: str) -> dict[str, Any]:
    """Write a line."""
    return {"text": text}


class DiaryConfig(ModuleConfig):
    pages: int = 100


class DiaryModule(Module):
    name = "diary"
    config_schema = DiaryConfig
    dependencies = ("paper",)
    tools = (diary_write,)


class BareModule(Module):
    name = "bare"


@pytest.mark.scenario("S001-11")
async def test_module_interface_matches_the_seed() -> None:
    assert inspect.isabstract(Module)
    diary = DiaryModule()
    assert isinstance(diary, Module)
    assert diary.name == "diary"
    assert issubclass(diary.config_schema, BaseModel)
    assert diary.config_schema.model_validate({}).pages == 100
    assert list(diary.dependencies) == ["paper"]

    assert _arguments(Module.register_tools) == ["mcp", "config", "db"]
    registrar = ToolRegistrar("diary", frozenset({"diary_write"}))
    diary.register_tools(registrar, DiaryConfig(), None)  # type: ignore[arg-type]
    assert [spec.function for spec in registrar.specs] == [diary_write]

    assert diary.migration_revisions() is None
    assert Labelled().migration_revisions() == "diaries"
    assert _arguments(Module.on_startup) == ["config", "db", "credential_store"]
    assert await diary.on_startup(DiaryConfig(), None, None) is None  # type: ignore[arg-type, func-returns-value]
    assert _arguments(Module.on_shutdown) == []
    assert await diary.on_shutdown() is None  # type: ignore[func-returns-value]


class Labelled(DiaryModule):
    def migration_revisions(self) -> str | None:
        return "diaries"


def _arguments(method: Any) -> list[str]:
    return list(inspect.signature(method).parameters)[1:]


def test_module_without_a_name_cannot_be_created() -> None:
    class Nameless(Module):
        pass

    with pytest.raises(TypeError, match="name"):
        Nameless()  # type: ignore[abstract]


def test_everything_except_the_name_has_a_default() -> None:
    bare = BareModule()
    assert (bare.tools, bare.jobs, tuple(bare.dependencies)) == ((), (), ())
    assert (bare.tool_metadata(), bare.credentials()) == ({}, ())
    with pytest.raises(ValidationError):
        bare.config_schema.model_validate({"anything": 1})


def test_tool_metadata_is_read_only() -> None:
    with pytest.raises(AttributeError):
        ToolMeta().egress = True  # type: ignore[misc]


def test_state_contains_status_and_reason() -> None:
    state = ModuleState("email")
    assert (state.active, state.available) == (True, True)
    failed = state.failed(FailurePhase.STARTUP, "no answer")
    assert failed.as_dict() == {
        "name": "email",
        "health": "failed",
        "enabled": True,
        "available": False,
        "failure_phase": "startup",
        "failure_error": "no answer",
        "blocked_by": None,
    }
    taken_along = ModuleState("calendar").cascade_failed(failed)
    assert taken_along.health is ModuleHealth.CASCADE_FAILED
    assert taken_along.failure_error == "it depends on email, which failed: no answer"
    assert not ModuleState("x").switched(False).available
    assert not ModuleState("x").blocked("y").available
    error = ModuleFailed("email", FailurePhase.STARTUP, OSError("no answer"))
    assert error.message == "module 'email' failed in startup: OSError: no answer"
