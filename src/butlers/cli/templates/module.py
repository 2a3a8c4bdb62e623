"""A new module's files, by their path in the butler's folder."""

MODULE = {
    "__init__.py": '''\
"""The $name module: say here in one sentence what it gives its butler.

Tables of its own: put Alembic revisions into migrations/ beside this file (chain and version table are
called $name then). What must be opened and closed: on_startup(config, db, credential_store), on_shutdown().
"""

from butlers.sdk import Module

from .config import ${class_name}Config
from .tools import TOOLS


class ${class_name}Module(Module):
    name = "$name"
    config_schema = ${class_name}Config
    tools = TOOLS
''',
    "config.py": '''\
"""The section [modules.$name] of butler.toml."""

from butlers.sdk import ModuleConfig


class ${class_name}Config(ModuleConfig):
    greeting: str = "Hello"
''',
    "tools.py": '''\
"""The tools of the $name module. A model reads their docstrings."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from butlers.sdk import SESSIONS, CallContext, Effect, tool

from .config import ${class_name}Config


@tool(callers=SESSIONS, effect=Effect.READ)
async def ${name}_greet(
    ctx: CallContext, who: Annotated[str, Field(min_length=1, max_length=80)]
) -> dict[str, Any]:
    """Greet someone by name."""
    return {"text": f"{${class_name}Config.of(ctx).greeting}, {who}!"}


TOOLS = (${name}_greet,)
''',
}

TEST = '''\
"""The $name module, tested by calling its tools."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic import ValidationError

from butlers.sdk import Module, load_module, module_context

FOLDER = Path(__file__).resolve().parents[1]


@pytest.fixture
def module() -> Module:
    return load_module(FOLDER, "$name")


def test_greets_with_the_configured_word(module: Module) -> None:
    (greet,) = module.tools
    answer = asyncio.run(greet(module_context(module, {"greeting": "Good day"}), who="Ada"))
    assert answer == {"text": "Good day, Ada!"}


def test_refuses_a_key_it_does_not_know(module: Module) -> None:
    with pytest.raises(ValidationError):
        module_context(module, {"greting": "Hello"})
'''
