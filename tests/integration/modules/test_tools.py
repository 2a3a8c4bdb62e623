"""Tools of modules: declared ones only, closures, egress only on the Messenger."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from butlers.daemon.mcp_server import name_tools
from butlers.domain.errors import ConfigInvalid
from butlers.domain.module import FailurePhase
from butlers.modules.base import ToolMeta
from butlers.scheduling.role import SchedulingRole
from butlers.tools.catalogue import core_tools
from butlers.tools.declaration import Effect, spec_of
from support.postbox import GOOD, ModuleHarness

MakeModules = Callable[..., ModuleHarness]

HEAD = "from butlers.sdk import *\nfrom butlers.sdk import SESSIONS, tool\n"


def module_code(name: str, *, tools: str = "", body: str = "    pass", declared: str = "()") -> str:
    return (
        f"{HEAD}{tools}\nclass Made(Module):\n    name = {name!r}\n    tools = {declared}\n{body}\n"
    )


def tool_code(name: str) -> str:
    return (
        f"@tool(callers=SESSIONS)\nasync def {name}(ctx, text: str) -> dict[str, str]:\n"
        "    'Say it.'\n    return {}\n"
    )


@pytest.mark.scenario("S001-12")
async def test_metadata_marks_sensitive_arguments(
    make_modules: MakeModules,
) -> None:
    modules = await make_modules().bring_up()
    email = modules.modules[0]
    metadata_by_tool = email.tool_metadata()
    assert isinstance(metadata_by_tool, dict)
    meta = metadata_by_tool["bot_email_send_message"]
    assert isinstance(meta, ToolMeta)
    assert meta.arg_sensitivities == {"to": True, "body": True}
    assert modules.tool_metadata() == metadata_by_tool  # for approvals


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ("{'say_hullo': ToolMeta()}", "names the unknown tool 'say_hullo'"),
        ("{'say_hello': ToolMeta({'txet': True})}", "say_hello has no argument 'txet'"),
    ],
)
async def test_metadata_for_unknown_tools_or_arguments_is_rejected(
    make_modules: MakeModules, metadata: str, reason: str
) -> None:
    code = module_code(
        "polite",
        tools=tool_code("say_hello"),
        declared="(say_hello,)",
        body=f"    def tool_metadata(self):\n        return {metadata}",
    )
    modules = await make_modules({"polite": ""}, code={"polite": code}).bring_up()
    (state,) = modules.states()
    assert state.failure_phase is FailurePhase.TOOLS
    assert reason in str(state.failure_error)


async def test_closures_of_register_tools_become_tools(make_modules: MakeModules) -> None:
    body = '''
    def tool_metadata(self):
        return {"note_count": ToolMeta(), "shout": ToolMeta()}

    async def register_tools(self, mcp, config, db):
        @mcp.tool()
        async def note_count(prefix: str, limit: int = 10) -> dict[str, int]:
            """Count the notes."""
            async with db.transaction() as connection:
                return {"count": await connection.fetchval("SELECT 41 + $1::int", limit)}

        @mcp.tool(name="shout", description="Say it loud.")
        async def whisper(text: str) -> str:
            return text.upper()
'''
    harness = make_modules({"notes": ""}, code={"notes": module_code("notes", body=body)})
    modules = await harness.bring_up()
    assert modules.healthy, modules.states()
    count, shout = (spec for _, spec in harness.specs)
    assert (count.name, count.description) == ("note_count", "Count the notes.")
    assert (shout.name, shout.description) == ("shout", "Say it loud.")
    assert count.effect is Effect.LONG  # it opens its own transactions
    assert await count.function(None, prefix="a", limit=1) == {"count": 42}
    assert await shout.function(None, text="ho") == "HO"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "    def register_tools(self, mcp, config, db):\n"
            "        @mcp.tool()\n        async def secret_door() -> None: ...",
            "registers the undeclared tool 'secret_door'",
        ),
        (
            "    def tool_metadata(self):\n        return {'slow_door': ToolMeta()}\n"
            "    def register_tools(self, mcp, config, db):\n"
            "        @mcp.tool\n        def slow_door() -> None: ...",
            "is not an async function",
        ),
        (
            "    def register_tools(self, mcp, config, db):\n"
            "        super().register_tools(mcp, config, db)\n        mcp.add_tool(door)",
            "registers the tool 'door' twice",
        ),
        (
            "    def register_tools(self, mcp, config, db):\n        raise OSError('no paper')",
            "OSError: no paper",
        ),
    ],
    ids=["undeclared", "not async", "twice", "crash"],
)
async def test_invalid_registration_fails_the_module(
    make_modules: MakeModules, body: str, reason: str
) -> None:
    code = module_code("doors", tools=tool_code("door"), declared="(door,)", body=body)
    harness = make_modules({"doors": ""}, code={"doors": code})
    modules = await harness.bring_up()
    (state,) = modules.states()
    assert state.failure_phase is FailurePhase.TOOLS
    assert reason in str(state.failure_error)
    assert harness.tools == []


async def test_only_the_messenger_keeps_egress_tools(
    make_modules: MakeModules,
) -> None:
    names = ["email_reply_to_thread", "telegram_send_message", "bot_email_search", "pager_call"]
    code = module_code(
        "posts",
        tools="".join(map(tool_code, names)),
        declared=f"({', '.join(names)})",
        body="    def tool_metadata(self):\n        return {'pager_call': ToolMeta(egress=True)}",
    )
    harness = make_modules({"posts": ""}, code={"posts": code})
    with capture_logs() as log:
        modules = await harness.bring_up()
    assert harness.tools == ["bot_email_search"]
    outside = ("email_reply_to_thread", "telegram_send_message", "pager_call")
    assert modules.stripped_tools == outside
    (line,) = (line for line in log if line["log_level"] == "warning")
    assert (line["event"], line["module"]) == ("egress tools stripped", "posts")
    assert line["tools"] == list(outside)
    assert modules.healthy
    messenger = make_modules({"posts": ""}, name="messenger", code={"posts": code})
    assert (await messenger.bring_up()).stripped_tools == ()
    assert messenger.tools == names


@pytest.mark.parametrize(
    ("name", "owner"), [("status", "the core"), ("bot_email_read_message", "module email")]
)
async def test_duplicate_tool_name_error_names_both_owners(
    make_modules: MakeModules, name: str, owner: str
) -> None:
    code = module_code("twin", tools=tool_code(name), declared=f"({name},)")
    harness = make_modules({**GOOD, "twin": ""}, code={"twin": code})
    await harness.bring_up()
    core = [("the core", spec) for spec in core_tools(SchedulingRole())]
    with pytest.raises(ConfigInvalid) as refused:
        name_tools([*core, *harness.specs])
    assert f"{name!r} is declared by {owner} and by module twin" in refused.value.message


async def test_core_and_module_tools_do_not_collide(
    make_modules: MakeModules,
) -> None:
    harness = make_modules()
    await harness.bring_up()
    core = [("the core", spec) for spec in core_tools(SchedulingRole())]
    named = name_tools([*core, *harness.specs])
    for tool_function in harness.modules.modules[0].tools:
        assert named[spec_of(tool_function).name].function is tool_function
