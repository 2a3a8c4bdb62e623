"""Evaluation on the real CLIs: installed skills (mostly Claude Code), limits, answers."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import pytest
from structlog.testing import capture_logs

from butlers.domain.errors import (
    DeadlineExceeded,
    InvalidArguments,
    OutputParseError,
    OverBudget,
    PromptEvaluationError,
    SkillInstallationError,
)
from butlers.prompt import (
    MarkdownSection,
    Prompt,
    PromptRendered,
    PromptTemplate,
    SkillExpanded,
    SkillRef,
    SkillsInstalled,
    SkillsSection,
    Tool,
    ToolContext,
    ToolInvoked,
    ToolResult,
)
from butlers.prompt.adapters import Disclosure, IsolationConfig, PromptBudget
from integration.prompt.adapters.conftest import ADAPTERS, Adapt
from support.fake_model import Call, FakeModel, Hang, Say, Use
from support.prompt_parts import Heard, Linter, LintParams, a_prompt, a_skill, offers
from support.skills import write_files, write_skill_md
from support.waiting import until

EVERY_CLI = pytest.mark.parametrize("cli", sorted(ADAPTERS))
OTHERS = pytest.mark.parametrize("cli", sorted(set(ADAPTERS) - {"claude-code"}))
NATIVE = a_skill("code-review", template="The word is AMARANTH.")


def a_folder(root: Path, name: str, body: str = "Look for CELADON.\n") -> Path:
    return write_skill_md(root / name, f"name: {name}\ndescription: About {name}.\n", body)


def in_home() -> set[bool]:
    """Return True if a child process's home has a skills folder."""
    environs = (child.environ() for child in psutil.Process().children(recursive=True))
    homes = {environ.get("HOME", "") for environ in environs}
    return {Path(home, ".claude/skills").exists() for home in homes if "/bp-" in home}


@pytest.mark.scenario("S004-15", "S004-17", "S004-25", "S004-27")
async def test_native_skills_are_loaded_by_the_cli(
    adapt: Adapt, model: FakeModel, tmp_path: Path
) -> None:
    ref = SkillRef(a_folder(tmp_path, "security"))
    heard = Heard().on(SkillsInstalled)
    model.script = [Use("Skill", skill="code-review"), Use("Skill", skill="security"), Say("ok")]
    prompt = a_prompt(NATIVE, ref, Linter().skill)
    await adapt().evaluate_async(prompt, session=heard.session)
    first, last = model.turns[0], model.turns[-1]
    assert "All of code-review." in first.text  # the CLI lists what it found in its home
    assert "About security." in first.text
    for hidden in ("AMARANTH", "CELADON", "[Skill: code-review]", "[Skill: security]"):
        assert hidden not in first.text
    assert "[Skill: linting] All of linting." in first.user
    assert "AMARANTH" in last.text
    assert "CELADON" in last.text
    (event,) = heard.events
    assert (event.inline_skills, event.referenced_skills) == (("code-review",), ("security",))
    assert event.skills == ("code-review", "security")
    assert event.skills_dir.endswith("/home/.claude/skills")
    assert event.session_id == heard.session.session_id
    assert (event.prompt_ns, event.prompt_key) == ("review", "python")
    assert event.created_at <= heard.session.now()
    assert event.event_id
    assert not Path(event.skills_dir).exists()  # noqa: ASYNC240 - the home went with the session


@pytest.mark.scenario("S004-15", "S004-16")
async def test_home_contains_the_installed_skills_during_the_session(
    adapt: Adapt, model: FakeModel, tmp_path: Path
) -> None:
    folder = write_files(a_folder(tmp_path, "security"), {"scripts/scan.sh": "echo scanned $1\n"})
    heard, seen = Heard().on(SkillsInstalled), {}
    heard.session.bus.subscribe(
        SkillsInstalled,
        lambda event: seen.update(
            {
                str(path.relative_to(event.skills_dir)): path.stat().st_mode & 0o777
                for path in Path(event.skills_dir).rglob("*")
                if path.is_file()
            }
        ),
    )
    await adapt().evaluate_async(a_prompt(NATIVE, SkillRef(folder)), session=heard.session)
    assert set(seen) == {"code-review/SKILL.md", "security/SKILL.md", "security/scripts/scan.sh"}
    assert seen["security/scripts/scan.sh"] == 0o755


async def test_session_can_run_only_the_skills_scripts(
    adapt: Adapt, model: FakeModel, tmp_path: Path
) -> None:
    script = "#!/bin/sh\necho scanned it\n"
    folder = write_files(a_folder(tmp_path, "security"), {"scripts/scan.sh": script})
    heard = Heard()

    def ask(event: SkillsInstalled) -> None:
        place = f"{event.skills_dir}/security"
        model.script = [
            Use("Bash", command=f"{place}/scripts/scan.sh"),
            Use("Read", file_path=f"{place}/SKILL.md"),
            Use("Bash", command="cat /etc/hostname"),
            Use("Write", file_path=f"{place}/SKILL.md", content="mine"),
            Say("ok"),
        ]

    heard.session.bus.subscribe(SkillsInstalled, ask)
    await adapt().evaluate_async(a_prompt(SkillRef(folder)), session=heard.session)
    ran, read, other, written = model.turns[-1].results
    assert "scanned it" in ran
    assert "CELADON" in read
    assert "Only these commands may be run" in other
    assert "Only these files may be written" in written


async def test_allowed_tools_of_a_skill_grant_nothing(
    adapt: Adapt, model: FakeModel, tmp_path: Path
) -> None:
    marks = tmp_path / "as-it-is-read", tmp_path / "after"
    front = "name: security\ndescription: x\nallowed-tools: Bash Bash(touch:*) Bash(touch *)\n"
    folder = write_skill_md(tmp_path / "security", front, f"CELADON !`touch {marks[0]}`\n")
    model.script = [
        Use("Skill", skill="security"),
        Use("Bash", command=f"touch {marks[1]}"),
        Say("ok"),
    ]
    await adapt().evaluate_async(a_prompt(SkillRef(folder)), session=Heard().session)
    assert "CELADON [shell command execution disabled by policy]" in model.turns[1].text
    assert "Only these commands may be run" in model.turns[2].results[1]
    assert [mark.exists() for mark in marks] == [False, False]


async def test_skill_with_hooks_is_not_installed(
    adapt: Adapt, model: FakeModel, tmp_path: Path
) -> None:
    front = """name: security
description: x
hooks:
  PreToolUse:
    - matcher: "*"
      hooks:
        - {type: command, command: "touch mark"}
"""
    ref = SkillRef(write_skill_md(tmp_path / "security", front))
    with pytest.raises(SkillInstallationError, match="contains hooks") as error:
        await adapt().evaluate_async(a_prompt(ref), session=Heard().session)
    assert (error.value.skill_name, error.value.source) == ("security", "ref")
    assert model.requests == []
    in_prompt = adapt(isolation=IsolationConfig(install_skills=False))
    await in_prompt.evaluate_async(a_prompt(ref), session=Heard().session)
    assert "[Skill: security] x" in model.turns[0].user


@pytest.mark.scenario("S004-18")
async def test_without_isolation_all_skills_are_in_the_prompt(
    adapt: Adapt, model: FakeModel, tmp_path: Path
) -> None:
    prompt = a_prompt(NATIVE, SkillRef(a_folder(tmp_path, "security")), Linter().skill)
    heard, installed = Heard().on(SkillsInstalled), []
    heard.session.bus.subscribe(SkillExpanded, lambda _: installed.extend(in_home()))
    model.script = [Use("open_sections", section_keys=["skills.security"]), Say("ok")]
    with capture_logs() as logs:
        await adapt(isolation=None).evaluate_async(prompt, session=heard.session)
    turn, last = model.turns
    assert "CELADON" in last.results[0]
    assert installed == [False]
    for name in ("code-review", "security", "linting"):
        assert f"[Skill: {name}]" in turn.user
        assert f'Call `open_sections` with key "skills.{name}"' in turn.user
    assert not offers(turn, "Skill")
    assert heard.events == []
    told = [(one["event"], one["log_level"]) for one in logs]
    assert ("Skills installation requires hermetic isolation", "warning") in told


@pytest.mark.scenario("S004-19")
async def test_without_installation_every_skill_stays_in_the_prompt(
    adapt: Adapt, model: FakeModel
) -> None:
    heard, installed = Heard().on(SkillsInstalled), []
    heard.session.bus.subscribe(SkillExpanded, lambda _: installed.extend(in_home()))
    isolation = IsolationConfig(install_skills=False)
    model.script = [Use("open_sections", section_keys=["skills.code-review"]), Say("ok")]
    await adapt(isolation=isolation).evaluate_async(
        a_prompt(NATIVE, Linter().skill), session=heard.session
    )
    first, last = model.turns
    assert "[Skill: code-review]" in first.user
    assert "[Skill: linting]" in first.user
    assert "AMARANTH" in last.results[0]
    assert heard.events == []
    assert installed == [False]


@pytest.mark.scenario("S004-20")
async def test_failed_installation_does_not_call_the_model(
    adapt: Adapt, model: FakeModel, tmp_path: Path
) -> None:
    folder = a_folder(tmp_path, "security")
    ref = SkillRef(folder)
    write_files(tmp_path, {"id_rsa": "PRIVATE"})
    (folder / "stolen").symlink_to(tmp_path / "id_rsa")
    with pytest.raises(SkillInstallationError, match="stolen") as error:
        await adapt().evaluate_async(a_prompt(ref), session=Heard().session)
    assert (error.value.skill_name, error.value.source) == ("security", "ref")
    assert model.turns == []


async def test_session_sees_nothing_of_the_host(adapt: Adapt, model: FakeModel) -> None:
    seen: list[dict[str, str]] = []

    def look(params: LintParams, *, context: ToolContext) -> ToolResult[None]:
        found = (child.environ() for child in psutil.Process().children(recursive=True))
        seen.extend(environ for environ in found if "/bp-" in environ.get("HOME", ""))
        return ToolResult(message="seen")

    tool = Tool[LintParams, None](name="look", description="Looks.", handler=look)
    section = MarkdownSection(title="A", key="a", template="x", tools=[tool])
    model.script = [Use("look", paths=[]), Say("ok")]
    await adapt().evaluate_async(a_prompt(sections=(section,)), session=Heard().session)
    assert seen
    for environ in seen:
        assert "DATABASE_PASSWORD" not in environ
        assert not environ["HOME"].endswith("host")


@dataclass(frozen=True)
class Verdict:
    ok: bool
    notes: tuple[str, ...] = ()


def a_question() -> Prompt[Verdict]:
    task = MarkdownSection(title="Task", key="task", template="Judge.")
    return Prompt(PromptTemplate[Verdict](ns="judge", key="one", sections=[task]))


@EVERY_CLI
async def test_a_typed_answer_becomes_its_dataclass(
    adapt: Adapt, model: FakeModel, cli: str
) -> None:
    model.script = [Say('Here:\n```json\n{"ok": true, "notes": ["a"]}\n```\n')]
    response = await adapt(cli).evaluate_async(a_question(), session=Heard().session)
    assert response.output == Verdict(ok=True, notes=("a",))
    assert "Response Format" in model.turns[0].user


@EVERY_CLI
@pytest.mark.parametrize("said", ["no", "```json\n{}\n```", "[1]"])
async def test_answer_that_does_not_fit_raises_output_parse_error(
    adapt: Adapt, model: FakeModel, cli: str, said: str
) -> None:
    model.script = [Say(said)]
    with pytest.raises(OutputParseError, match="is not a Verdict") as error:
        await adapt(cli).evaluate_async(a_question(), session=Heard().session)
    assert error.value.text == said


@EVERY_CLI
async def test_usage_is_counted(adapt: Adapt, model: FakeModel, cli: str) -> None:
    response = await adapt(cli).evaluate_async(a_prompt(), session=Heard().session)
    assert response.usage.input_tokens
    assert response.usage.output_tokens
    assert (response.usage.cost_usd is not None) == (cli == "claude-code")  # the only one to say it
    assert response.prompt_name == "review:python"


@pytest.mark.parametrize(
    "budget",
    [
        PromptBudget(max_cost_usd=Decimal("0.0001")),
        PromptBudget(max_turns=1),
        PromptBudget(max_total_tokens=9),
    ],
)
async def test_budget_is_enforced(adapt: Adapt, model: FakeModel, budget: PromptBudget) -> None:
    linter = Linter()
    section = MarkdownSection(title="A", key="a", template="x", tools=[linter.tool])
    model.script = [*[Use("lint_code", paths=[])] * 3, Say("ok")]
    with pytest.raises(OverBudget):
        await adapt().evaluate_async(
            a_prompt(sections=(section,)), session=Heard().session, budget=budget
        )


@OTHERS
async def test_token_limit_is_checked_after_each_run(
    adapt: Adapt, model: FakeModel, cli: str
) -> None:
    with pytest.raises(OverBudget, match="tokens used, 9 allowed"):
        await adapt(cli).evaluate_async(
            a_prompt(), session=Heard().session, budget=PromptBudget(max_total_tokens=9)
        )


@OTHERS
async def test_no_new_run_after_unknown_usage(adapt: Adapt, model: FakeModel, cli: str) -> None:
    heard = Heard().on(PromptRendered)
    model.script = [Use("open_sections", section_keys=["skills.linting"]), Say("ok")]
    with pytest.raises(OverBudget, match="the usage so far is unknown"):
        await adapt(cli, disclosure=Disclosure.RESTART).evaluate_async(
            a_prompt(Linter().skill),
            session=heard.session,
            budget=PromptBudget(max_total_tokens=1_000_000),
        )
    assert len(heard.events) == 1


@OTHERS
@pytest.mark.parametrize(
    "budget", [PromptBudget(max_turns=1), PromptBudget(max_cost_usd=Decimal(1))]
)
async def test_unsupported_budget_is_rejected(
    adapt: Adapt, model: FakeModel, cli: str, budget: PromptBudget
) -> None:
    with pytest.raises(PromptEvaluationError, match="cannot limit cost or turns") as error:
        await adapt(cli).evaluate_async(a_prompt(), session=Heard().session, budget=budget)
    assert error.value.hint
    assert model.requests == []


@EVERY_CLI
async def test_a_deadline_ends_the_session_and_all_it_started(
    adapt: Adapt, model: FakeModel, cli: str
) -> None:
    model.script = [Hang()]
    heard = Heard().on(PromptRendered)
    session = heard.session
    deadline = session.now() + timedelta(seconds=8)
    with pytest.raises(DeadlineExceeded):
        await adapt(cli).evaluate_async(a_prompt(), session=session, deadline=deadline)
    assert len(heard.events) == 1  # it was begun, and not begun again
    homes = [one.environ().get("HOME", "") for one in psutil.Process().children(recursive=True)]
    assert not any("/bp-" in home for home in homes)


@pytest.mark.parametrize("handler", ["a coroutine", "a function"])
async def test_endless_tool_call_is_cancelled_at_the_deadline(
    adapt: Adapt, model: FakeModel, handler: str
) -> None:
    begun, cancelled, stays = asyncio.Event(), asyncio.Event(), threading.Event()

    async def hang(params: LintParams, *, context: ToolContext) -> ToolResult[None]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    def block(params: LintParams, *, context: ToolContext) -> ToolResult[None]:
        stays.wait()
        return ToolResult("too late")

    handle = hang if handler == "a coroutine" else block
    tool = Tool[LintParams, None](name="hang", description="Hangs.", handler=handle)
    section = MarkdownSection(title="A", key="a", template="x", tools=[tool])
    model.script = [Use(Call("hang", {"paths": []})), Say("ok")]
    session = Heard().session
    deadline = session.now() + timedelta(seconds=8)
    try:
        with pytest.raises(DeadlineExceeded):
            await adapt().evaluate_async(
                a_prompt(sections=(section,)), session=session, deadline=deadline
            )
        if handle is hang:
            assert begun.is_set()
            await until("it to be cancelled", cancelled.is_set)
    finally:
        stays.set()


async def test_handler_without_a_tool_result_is_a_failed_call(
    adapt: Adapt, model: FakeModel
) -> None:
    def forget(params: LintParams, *, context: ToolContext) -> ToolResult[None]:
        return None  # type: ignore[return-value]

    tool = Tool[LintParams, None](name="forget", description="Forgets.", handler=forget)
    section = MarkdownSection(title="A", key="a", template="x", tools=[tool])
    heard = Heard().on(ToolInvoked)
    model.script = [Use(Call("forget", {"paths": []})), Say("ok")]
    await adapt().evaluate_async(a_prompt(sections=(section,)), session=heard.session)
    (told,) = model.turns[-1].results
    assert "returned NoneType, not ToolResult" in told
    assert [event.success for event in heard.events] == [False]


async def test_passed_deadline_starts_nothing(adapt: Adapt, model: FakeModel) -> None:
    session = Heard().session
    with pytest.raises(DeadlineExceeded):
        await adapt().evaluate_async(a_prompt(), session=session, deadline=session.now())
    assert model.requests == []


@EVERY_CLI
async def test_tool_failure_is_reported_to_the_model(
    adapt: Adapt, model: FakeModel, cli: str
) -> None:
    def fail(params: LintParams, *, context: ToolContext) -> ToolResult[None]:
        if params.paths:
            raise InvalidArguments("no such file", hint="name another")
        raise ZeroDivisionError("oh")

    tool = Tool[LintParams, None](name="fail", description="Fails.", handler=fail)
    section = MarkdownSection(title="A", key="a", template="x", tools=[tool])
    heard = Heard().on(ToolInvoked)
    calls = (
        Call("fail", {"paths": ["a"]}),
        Call("fail", {"paths": []}),
        Call("fail", {"paths": 1}),
    )
    model.script = [*(Use(call) for call in calls), Say("ok")]
    await adapt(cli).evaluate_async(a_prompt(sections=(section,)), session=heard.session)
    typed, crashed, wrong = model.turns[-1].results
    assert "no such file (hint: name another)" in typed
    assert "fail failed: oh" in crashed
    assert "paths" in wrong
    arrived = 2 if cli == "gemini" else 3  # it looks at the arguments itself, and keeps wrong ones
    assert [event.success for event in heard.events] == [False] * arrived


async def test_evaluate_rejects_a_running_event_loop(adapt: Adapt, model: FakeModel) -> None:
    adapter, session = adapt(), Heard().session
    with pytest.raises(PromptEvaluationError) as error:
        adapter.evaluate(a_prompt(), session=session)
    assert error.value.hint == "await evaluate_async() instead"
    response = await asyncio.to_thread(adapter.evaluate, a_prompt(), session=session)
    assert response.text == "Done."


async def test_missing_cli_is_reported(adapt: Adapt, tmp_path: Path) -> None:
    adapter: Any = adapt()
    adapter._environ = {"PATH": str(tmp_path)}
    with pytest.raises(PromptEvaluationError, match="not installed") as error:
        await adapter.evaluate_async(a_prompt(), session=Heard().session)
    assert "npm install" in error.value.hint


@pytest.mark.scenario("S004-17", "S004-29")
async def test_native_and_prompt_skills_share_a_section(adapt: Adapt, model: FakeModel) -> None:
    linter = Linter()
    section = SkillsSection(skills=[a_skill("architecture"), linter.skill])
    assert [one.name for one in section.native_skills] == ["architecture"]
    await adapt().evaluate_async(
        a_prompt(a_skill("architecture"), linter.skill), session=Heard().session
    )
    (turn,) = model.turns
    assert "All of architecture." in turn.text
    assert "[Skill: architecture]" not in turn.text
    assert "[Skill: linting]" in turn.user


async def test_empty_prompt_does_not_call_the_model(adapt: Adapt, model: FakeModel) -> None:
    section = SkillsSection(skills=[NATIVE])
    prompt = Prompt(PromptTemplate[None](ns="n", key="k", sections=[section]))
    with pytest.raises(PromptEvaluationError, match="is empty"):
        await adapt().evaluate_async(prompt, session=Heard().session)
    assert model.requests == []


async def test_override_text_reaches_an_installed_skill(adapt: Adapt, model: FakeModel) -> None:
    made = a_prompt(NATIVE)
    prompt = Prompt(made.template, overrides={"skills.code-review": "The word is VERMILION."})
    model.script = [Use("Skill", skill="code-review"), Say("ok")]
    await adapt().evaluate_async(prompt, session=Heard().session)
    assert "VERMILION" in model.turns[-1].text
    assert "AMARANTH" not in model.turns[-1].text


async def test_cwd_can_be_read(adapt: Adapt, model: FakeModel, tmp_path: Path) -> None:
    work = write_files(tmp_path / "work", {"a.py": "word = 'CINNABAR'\n"})
    model.script = [
        Use("Read", file_path=str(work / "a.py")),
        Use("Write", file_path=str(work / "b.py"), content="x"),
        Say("ok"),
    ]
    await adapt(cwd=work).evaluate_async(a_prompt(NATIVE), session=Heard().session)
    read, written = model.turns[-1].results
    assert "CINNABAR" in read
    assert "Only these files may be written" in written
    with pytest.raises(PromptEvaluationError, match="does not support a read-only folder"):
        await adapt("codex", cwd=work).evaluate_async(a_prompt(), session=Heard().session)


async def test_cancelled_evaluation_leaves_nothing(adapt: Adapt, model: FakeModel) -> None:
    model.script = [Hang()]
    heard = Heard().on(SkillsInstalled)
    task = asyncio.create_task(adapt().evaluate_async(a_prompt(NATIVE), session=heard.session))
    await until("the model to be asked", lambda: model.hanging or task.done() or None)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    homes = [one.environ().get("HOME", "") for one in psutil.Process().children(recursive=True)]
    assert not any("/bp-" in home for home in homes)
    assert not Path(heard.events[0].skills_dir).exists()  # noqa: ASYNC240


async def test_gemini_loads_skills_from_its_home_too(
    adapt: Adapt, model: FakeModel, tmp_path: Path
) -> None:
    script = "#!/bin/sh\necho scanned it\n"
    folder = write_files(a_folder(tmp_path, "security"), {"scripts/scan.sh": script})
    heard = Heard().on(SkillsInstalled)

    def ask(event: SkillsInstalled) -> None:
        model.script = [
            Use("activate_skill", name="code-review"),
            Use("activate_skill", name="security"),
            Use("run_shell_command", command=f"{event.skills_dir}/security/scripts/scan.sh"),
            Use(Call("run_shell_command", {"command": "cat /etc/hostname"}, anyway=True)),
            Say("ok"),
        ]

    heard.session.bus.subscribe(SkillsInstalled, ask)
    await adapt("gemini").evaluate_async(
        a_prompt(NATIVE, SkillRef(folder), Linter().skill), session=heard.session
    )
    first, last = model.turns[0], model.turns[-1]
    assert "All of code-review." in first.text
    assert "About security." in first.text
    for hidden in ("AMARANTH", "CELADON", "[Skill: code-review]"):
        assert hidden not in first.text
    assert "[Skill: linting]" in first.user
    review, security, ran, refused = last.results
    assert "AMARANTH" in review
    assert "CELADON" in security
    assert "scanned it" in ran
    assert "denied" in refused.lower()
    assert heard.events[0].skills_dir.endswith("/home/.agents/skills")
