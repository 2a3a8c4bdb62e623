"""Scripts of skills: arguments, variables, answers, limits and cleanup."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from importlib import metadata
from pathlib import Path

import pytest

from butlers.domain.errors import (
    SkillChanged,
    SkillInterpreterMissing,
    SkillScriptError,
    SkillScriptNotFound,
    SkillScriptOutputTooLarge,
    SkillScriptTimeout,
)
from butlers.domain.session import Access
from butlers.process import sandbox
from butlers.process.runner import ScriptLimits
from butlers.skills.reader import read_skill
from butlers.skills.scripts.runner import ScriptRun, ScriptRunner
from butlers.skills.skill import Pack
from support import npm
from support.scripts import Scripts, living
from support.skills import write_files, write_skill_md
from support.waiting import until

ECHO_PY = """
import json, sys
print(json.dumps({"success": True, "result": {"argv": sys.argv[1:], "stdin": sys.stdin.read()}}))
"""
ENVIRONMENT_PY = """
import json, os
print(json.dumps({"success": True, "result": dict(os.environ)}))
"""


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    return Scripts(tmp_path)


@pytest.fixture(params=["with sandbox", "without"])
def sandboxed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run each test with the sandbox, and as on a machine that has none and was told to do without."""
    up = request.param == "with sandbox"
    if not up:
        monkeypatch.setattr(ScriptRunner, "has_sandbox", lambda _self, _pack: False)
    elif sandbox.sandbox_problem() is not None:
        pytest.skip("this system allows no namespaces")
    return up


@pytest.mark.scenario("S003-07")
async def test_arguments_come_as_json_on_the_command_line_and_on_stdin(scripts: Scripts) -> None:
    pack = scripts.pack({"scripts/echo.py": ECHO_PY})
    given = {"content": "Grüße 'n' \"more\"", "mediaUrls": ["a", "b"]}
    answer = await scripts.run(pack, "scripts/echo.py", given)
    assert json.loads(answer.result["argv"][0]) == given
    assert json.loads(answer.result["stdin"]) == given
    assert len(answer.result["argv"]) == 1


async def test_arguments_too_long_for_the_command_line_come_on_stdin(scripts: Scripts) -> None:
    pack = scripts.pack({"scripts/echo.py": ECHO_PY})
    answer = await scripts.run(pack, "echo.py", {"text": "x" * 200_000})
    assert answer.result["argv"] == ["-"]
    assert len(json.loads(answer.result["stdin"])["text"]) == 200_000


async def test_list_arguments_are_separate_words(scripts: Scripts) -> None:
    pack = scripts.pack({"scripts/echo.py": ECHO_PY})
    answer = await scripts.run(pack, "echo", ["--date", "2026-02-09", "a b; rm -rf /"])
    assert answer.result == {"argv": ["--date", "2026-02-09", "a b; rm -rf /"], "stdin": ""}


@pytest.mark.parametrize(
    "arguments", [{"x": float("nan")}, {"x": "y" * 1_100_000}, ["a", 1], ["a\0b"], {"x": "\ud800"}]
)
async def test_invalid_arguments_are_refused(scripts: Scripts, arguments: object) -> None:
    pack = scripts.pack({"scripts/echo.py": ECHO_PY})
    with pytest.raises(SkillScriptError) as error:
        await scripts.run(pack, "echo", arguments)  # type: ignore[arg-type]
    assert error.value.hint


@pytest.mark.scenario("S003-08")
@pytest.mark.parametrize(
    ("body", "success", "result", "error", "code"),
    [
        ('print(\'{"success": true, "result": [1, 2]}\')', True, [1, 2], None, 0),
        ('print(\'{"success": false, "error": "no luck"}\'); sys.exit(3)', False, None, "no luck", 3),
        ('print(\'{"success": false, "error": "no luck"}\')', False, None, "no luck", 0),
        ('print(\'{"success": true, "result": 1}\'); sys.exit(4)', False, None, "exit code 4 without", 4),
        ('print("working"); print(\'{"success": true, "result": 7}\')', True, 7, None, 0),
        ('print("Summary: 3 completed, 1 overdue")', True, "Summary: 3 completed, 1 overdue", None, 0),
        ("print(42)", True, 42, None, 0),
        ('print(\'{"success": "yes"}\')', True, {"success": "yes"}, None, 0),
        ("print('NaN')", True, "NaN", None, 0),
        ("print('[' * 5000)", True, "[" * 5000, None, 0),
        ("sys.stdout.buffer.write(b'\\xff')", True, "\ufffd", None, 0),
        ("pass", True, "", None, 0),
        ("sys.exit('the disk is full')", False, None, "the disk is full", 1),
        ("sys.exit(9)", False, None, "exit code 9 without an error message", 9),
        ('print(\'{"success": false, "error": {"a": 1}}\')', False, None, '{"a": 1}', 0),
    ],
)  # fmt: skip
async def test_an_answer_is_read_from_stdout_and_the_exit_code(
    scripts: Scripts, body: str, success: bool, result: object, error: str | None, code: int
) -> None:
    pack = scripts.pack({"scripts/a.py": f"import sys\n{body}\n"})
    answer = await scripts.run(pack, "a")
    assert (answer.success, answer.result, answer.exit_code) == (success, result, code)
    assert (error is None and answer.error is None) or (error and error in (answer.error or ""))
    assert json.loads(json.dumps(answer.as_dict()))["success"] is success


async def test_failure_has_exit_code_and_stderr(scripts: Scripts) -> None:
    body = "echo 'cannot reach the server' >&2\necho half\nexit 5\n"
    answer = await scripts.run(scripts.pack({"scripts/a.sh": body}), "a")
    assert (answer.success, answer.exit_code) == (False, 5)
    assert answer.stderr == "cannot reach the server\n"
    assert answer.stdout == "half\n"


@pytest.mark.scenario("S003-09")
async def test_shell_python_and_typescript_run_and_a_missing_interpreter_is_named(
    tmp_path: Path,
) -> None:
    typescript = """
    interface Args { name: string }
    const args: Args = JSON.parse(process.argv[2] || '{}');
    console.log(JSON.stringify({ success: true, result: `hello ${args.name}` }));
    """
    scripts = Scripts(tmp_path, f"{npm.installed('mcp')}{os.pathsep}{os.environ['PATH']}")
    pack = scripts.pack(
        {
            "scripts/a.sh": 'echo "{\\"success\\": true, \\"result\\": $(printf %s "$1" | wc -c)}"\n',
            "scripts/b.py": ECHO_PY,
            "scripts/c.ts": typescript,
            "scripts/d.js": typescript.replace("interface Args { name: string }", "").replace(": Args", ""),
        }
    )  # fmt: skip
    given = {"name": "you"}
    assert (await scripts.run(pack, "a.sh", given)).result == len('{"name": "you"}')
    assert (await scripts.run(pack, "b.py", given)).success
    assert (await scripts.run(pack, "c.ts", given)).result == "hello you"
    assert (await scripts.run(pack, "d.js", given)).result == "hello you"
    poor = Scripts(tmp_path, str(tmp_path))
    with pytest.raises(
        SkillInterpreterMissing, match=r"c\.ts needs Node >=22\.6\.0, or tsx or bun"
    ):
        await poor.run(pack, "c.ts", given)
    with pytest.raises(
        SkillInterpreterMissing, match=r"d\.js needs Node, or bun; node is not on PATH"
    ):
        await poor.run(pack, "d.js", given)
    with pytest.raises(SkillInterpreterMissing, match="needs bash or sh") as error:
        await poor.run(pack, "a.sh", given)
    assert error.value.hint
    assert (await poor.run(pack, "b.py", given)).success


async def test_an_old_node_is_named_with_its_version(tmp_path: Path) -> None:
    write_files(tmp_path / "bin", {"node": "#!/bin/sh\necho v20.1.0\n"}, executable=True)
    scripts = Scripts(tmp_path, f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    pack = scripts.pack({"scripts/c.ts": "", "scripts/d.js": ""}, nodeVersion=">=22.0.0")
    with pytest.raises(SkillInterpreterMissing, match=r"this machine has Node 20\.1\.0"):
        await scripts.run(pack, "c")
    with pytest.raises(SkillInterpreterMissing, match=r"needs Node >=22\.0\.0"):
        await scripts.run(pack, "d")


@pytest.mark.scenario("S003-10", "S003-36")
async def test_a_script_gets_the_declared_variables_and_no_other(
    scripts: Scripts, sandboxed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUTLERS_MASTER_KEY", "m" * 40)
    monkeypatch.setenv("TWITTER_API_KEY", "the host's own")
    pack = scripts.pack(
        {"scripts/env.py": ENVIRONMENT_PY, "scripts/key.sh": 'echo "${#TWITTER_API_KEY}"\n'},
        envVars=["TWITTER_API_KEY", "SECOND_KEY"],
    )
    store = {"TWITTER_API_KEY": "abc123-value", "OTHER_KEY": "x" * 20}
    answer = await scripts.run(pack, "env", variables=store)
    assert set(answer.result) - {"LC_CTYPE", "PWD", "SHLVL", "_", "OLDPWD"} == {
        "PATH", "LANG", "HOME", "TMPDIR", "BUTLERS_ACCESS", "BUTLERS_OUTPUT", "TWITTER_API_KEY",
    }  # fmt: skip
    assert answer.result["TWITTER_API_KEY"] == "[redacted]"
    assert answer.missing == ("SECOND_KEY",)
    # The value comes from the store.
    assert (await scripts.run(pack, "key", variables=store)).result == len("abc123-value")


@pytest.mark.parametrize(
    "name", ["BUTLERS_MASTER_KEY", "DATABASE_URL", "PATH", "LD_PRELOAD", "PYTHONPATH", "HOME"]
)
async def test_reserved_variables_cannot_be_declared(scripts: Scripts, name: str) -> None:
    pack = scripts.pack({"scripts/env.py": ENVIRONMENT_PY}, envVars=[name])
    with pytest.raises(SkillScriptError, match=f"declares {name}"):
        await scripts.run(pack, "env", variables={name: "value"})


async def test_secrets_are_hidden_in_the_answer_and_in_both_streams(scripts: Scripts) -> None:
    body = """
import base64, json, os, sys
key = os.environ["API_KEY"]
print(key, base64.b64encode(key.encode()).decode(), file=sys.stderr)
print(json.dumps({"success": len(sys.argv[1]) < 5, "error": key, "result": {key: [f"<{key}>"]}}))
"""
    pack = scripts.pack({"scripts/a.py": body}, envVars=["API_KEY"])
    secret = "s3cret value/with+signs"
    for arguments in ({}, {"fail": True}):
        answer = await scripts.run(pack, "a", arguments, {"API_KEY": secret})
        shown = json.dumps(answer.as_dict()) + answer.stdout + answer.stderr
        assert "s3cret" not in shown
        assert "czNjcmV0" not in shown
        assert "[redacted]" in shown


async def test_secrets_are_hidden_in_the_stderr_of_a_stopped_script(scripts: Scripts) -> None:
    body = 'echo "key is $API_KEY" >&2\nexec sleep 100\n'
    pack = scripts.pack({"scripts/a.sh": body}, envVars=["API_KEY"])
    with pytest.raises(SkillScriptTimeout, match="key is") as error:
        await scripts.run(
            pack, "a", {}, {"API_KEY": "s3cret-value"}, limits=ScriptLimits(seconds=1)
        )
    assert "s3cret" not in error.value.message


async def test_a_script_works_in_the_butlers_folder_with_a_home_of_its_own(
    scripts: Scripts, sandboxed: bool
) -> None:
    body = (
        'pwd -P; echo "$HOME"; echo "$TMPDIR"; touch "$BUTLERS_OUTPUT/made" "$HOME/x" "$TMPDIR/y"\n'
        'ls -A "$HOME"; touch other 2>/dev/null; true\n'
    )
    answer = await scripts.run(scripts.pack({"scripts/a.sh": body}), "a")
    work, home, tmp, listed = answer.result.splitlines()
    assert work == str(scripts.work.resolve())
    assert (scripts.work / "output" / "made").exists()
    assert (scripts.work / "other").exists() is not sandboxed
    assert listed == "x"
    assert len({work, home, tmp, str(Path.home())}) == 4
    assert not any(Path(home).parent.glob(Path(home).name))


@pytest.mark.parametrize("file", ["scripts/a.sh", "manifest.json", "notes.md"])
async def test_one_changed_byte_anywhere_in_the_pack_refuses_the_run(
    scripts: Scripts, file: str
) -> None:
    pack = scripts.pack({"scripts/a.sh": "touch output/ran\n", "notes.md": "# Notes\n"})
    assert (await scripts.run(pack, "a")).success
    (scripts.work / "output" / "ran").unlink()
    changed = pack.folder / file
    changed.chmod(0o755)
    changed.write_bytes(changed.read_bytes()[:-1] + b" ")
    with pytest.raises(SkillChanged):
        await scripts.run(pack, "a")
    assert not (scripts.work / "output" / "ran").exists()


@pytest.mark.parametrize("name", ["added.md", "__pycache__/a.cpython-311.pyc"])
async def test_an_added_file_refuses_the_run_too(scripts: Scripts, name: str) -> None:
    pack = scripts.pack({"scripts/a.sh": "true\n"})
    write_files(pack.folder, {name: "x"})
    with pytest.raises(SkillChanged):
        await scripts.run(pack, "a")


async def test_script_cannot_change_its_pack(scripts: Scripts) -> None:
    body = (
        'cd "$(dirname "$0")"; (chmod u+w . a.sh; echo "echo evil" > a.sh) 2>/dev/null; echo done\n'
    )
    modules: dict[str, str | bytes] = {"scripts/lib.py": "X = 1\n", "scripts/b.py": "import lib\n"}
    pack = scripts.pack({"scripts/a.sh": body, **modules})
    assert (await scripts.run(pack, "a")).result == "done"
    assert (await scripts.run(pack, "a")).result == "done"
    assert (await scripts.run(pack, "b")).success
    assert (await scripts.run(pack, "b")).success  # Python left nothing in the pack


async def test_only_declared_scripts_run_where_some_are_declared(scripts: Scripts) -> None:
    pack = scripts.pack({"scripts/a.sh": "true\n", "lib/hidden.sh": "true\n"})
    for name in ("hidden", "lib/hidden.sh", "../a.sh", "/bin/sh", "manifest.json", ""):
        with pytest.raises(SkillScriptNotFound) as error:
            await scripts.run(pack, name)
        assert error.value.hint == "available: scripts/a.sh"


async def test_ambiguous_script_name_is_refused(scripts: Scripts) -> None:
    pack = scripts.pack({"scripts/a.sh": "echo sh\n", "scripts/a.py": "print('py')\n"})
    with pytest.raises(SkillScriptNotFound, match="several scripts named 'a'") as error:
        await scripts.run(pack, "a")
    assert "scripts/a.py" in (error.value.hint or "")
    assert (await scripts.run(pack, "a.py")).result == "py"


async def test_file_of_unknown_language_is_refused(scripts: Scripts) -> None:
    pack = scripts.pack({"scripts/a.rb": "puts 1\n"})
    with pytest.raises(SkillScriptError, match=r"a\.rb cannot be run"):
        await scripts.run(pack, "a")


# -- a butler's own skills, which are not registered


@pytest.mark.scenario("S000-28")
async def test_a_script_of_the_standard_library_runs_without_any_installation(
    scripts: Scripts,
) -> None:
    folder = write_skill_md(scripts.work / "skills" / "morning-briefing", "description: x\n")
    body = """
import datetime, json, os, sys
print(json.dumps({"words": sys.argv[1:], "here": sorted(os.listdir("."))}))
"""
    write_files(folder, {"run.py": body})
    before = installed_packages()
    answer = await scripts.run(own(folder), "run.py", ["--date", "2026-02-09"])
    assert answer.success
    assert answer.result == {"words": ["--date", "2026-02-09"], "here": ["output", "skills"]}
    assert installed_packages() == before


@pytest.mark.scenario("S000-29")
async def test_a_documented_dependency_is_not_installed_for_the_script(scripts: Scripts) -> None:
    body = "\n# Use\n\n`run.py` requires the package `surely-not-there`.\n"
    folder = write_skill_md(scripts.work / "skills" / "a-skill", "description: x\n", body)
    write_files(folder, {"run.py": "import surely_not_there\n"})
    skill = read_skill(folder).skill
    assert skill is not None
    assert "surely-not-there" in skill.instructions  # the documentation is what a session reads
    for _ in range(2):
        answer = await scripts.run(own(folder), "run.py")
        assert not answer.success
        assert "No module named 'surely_not_there'" in (answer.error or "")


def installed_packages() -> list[str]:
    return sorted(f"{found.name}@{found.version}" for found in metadata.distributions())


def own(folder: Path) -> Pack:
    skill = read_skill(folder).skill
    assert skill is not None
    return Pack(folder, skill)


# -- endings


async def test_timeout_stops_the_whole_process_group(scripts: Scripts, sandboxed: bool) -> None:
    mark = f"mark-{secrets.token_hex(6)}"
    body = f"trap '' TERM\n{sys.executable} -c 'import time; time.sleep(300)' {mark} &\nwait\n"
    pack = scripts.pack({"scripts/a.sh": body})
    with pytest.raises(SkillScriptTimeout, match=r"stopped after 1 s"):
        await scripts.run(pack, "a", limits=ScriptLimits(seconds=1))
    assert living(mark) == []


async def test_background_processes_end_with_the_script(scripts: Scripts, sandboxed: bool) -> None:
    mark = f"mark-{secrets.token_hex(6)}"
    body = f"{sys.executable} -c 'import time; time.sleep(300)' {mark} &\necho left\n"
    answer = await scripts.run(scripts.pack({"scripts/a.sh": body}), "a")
    assert answer.result == "left"
    await gone(mark)


async def test_daemonized_process_ends_in_the_sandbox(scripts: Scripts) -> None:
    if sandbox.sandbox_problem() is not None:
        pytest.skip("this system allows no namespaces")
    mark = f"mark-{secrets.token_hex(6)}"
    sleeper = f"{sys.executable} -c 'import time; time.sleep(300)' {mark}"
    body = f"setsid {sleeper} >/dev/null 2>&1 &\necho left\n"
    assert (await scripts.run(scripts.pack({"scripts/a.sh": body}), "a")).result == "left"
    await gone(mark)


async def gone(mark: str) -> None:
    async with asyncio.timeout(20):
        while living(mark):  # noqa: ASYNC110  (it happens in the system)
            await asyncio.sleep(0.02)


async def test_cancelled_run_leaves_no_process(scripts: Scripts, sandboxed: bool) -> None:
    mark = f"mark-{secrets.token_hex(6)}"
    body = (
        f"{sys.executable} -c 'import time; time.sleep(300)' {mark} &\ntouch output/begun\nwait\n"
    )
    pack = scripts.pack({"scripts/a.sh": body})
    running = asyncio.create_task(scripts.run(pack, "a"))
    async with asyncio.timeout(30):
        while not (scripts.work / "output" / "begun").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await gone(mark)


async def test_endless_output_stops_the_script(scripts: Scripts) -> None:
    pack = scripts.pack({"scripts/a.sh": "yes\n", "scripts/b.sh": "yes | head -c 3000000\n"})
    for script in ("a", "b"):
        with pytest.raises(SkillScriptOutputTooLarge, match="more than 1024 KB"):
            await scripts.run(pack, script)


async def test_end_of_endless_stderr_is_kept(scripts: Scripts) -> None:
    body = "yes | head -c 300000 >&2\necho last >&2\nexit 1\n"
    answer = await scripts.run(scripts.pack({"scripts/a.sh": body}), "a")
    assert answer.error == "last"
    assert len(answer.stderr) == ScriptLimits().errors


# -- sandbox


@pytest.mark.scenario("S003-36")
async def test_sandbox_hides_our_home_and_other_processes(
    scripts: Scripts,
) -> None:
    if sandbox.sandbox_problem() is not None:
        pytest.skip("this system allows no namespaces")
    write_files(scripts.home, {"keys/master.key": "KEY", "roster/other/note": "other"})
    write_files(scripts.home, {"roster/mine/note": "mine"})
    body = f"""
cd "$(pwd)"
cat note
cat {scripts.home}/keys/master.key ../../keys/master.key ../other/note
cat {scripts.home}/roster/other/note
umount {scripts.home}
cat {scripts.home}/keys/master.key
cat /proc/{os.getpid()}/environ
echo changed > note
echo changed > output/note
echo; ls /proc | grep -c '^[0-9]'
"""
    pack = scripts.pack({"scripts/a.sh": body})
    work = scripts.home / "roster" / "mine"
    answer = await scripts.run(pack, "a", work=work)
    mine, processes = answer.stdout.splitlines()
    assert mine.startswith("mine")
    assert "KEY" not in answer.stdout
    assert "other" not in answer.stdout
    assert int(processes) < 10
    assert (work / "note").read_text() == "mine"
    assert (work / "output" / "note").read_text() == "changed\n"


async def test_home_that_contains_our_python_stays_visible(scripts: Scripts) -> None:
    folder = write_skill_md(scripts.work / "skills" / "a-skill", "description: x\n")
    write_files(folder, {"run.py": "print('ran')\n"})
    runner = ScriptRunner(Path(sys.prefix), scripts.search_path)
    assert (await runner.run(own(folder), ScriptRun("run", {}, scripts.work))).result == "ran"


async def test_script_gets_its_access_level(scripts: Scripts) -> None:
    pack = scripts.pack({"scripts/a.sh": 'echo "$BUTLERS_ACCESS"\n'})
    for access in Access:
        assert (await scripts.run(pack, "a", access=access)).result == str(access)


RUNNER = """
import asyncio, sys
from pathlib import Path
from butlers.process import sandbox
from butlers.skills.reader import read_skill
from butlers.skills.scripts.runner import ScriptRun, ScriptRunner
from butlers.skills.skill import Pack
folder, work = Path(sys.argv[1]), Path(sys.argv[2])
if sys.argv[3] == "without":
    ScriptRunner.has_sandbox = lambda _self, _pack: False
pack = Pack(folder, read_skill(folder).skill)
asyncio.run(ScriptRunner(Path(sys.argv[4])).run(pack, ScriptRun("stays", {}, work)))
"""


@pytest.mark.parametrize("way", ["with sandbox", "without"])
async def test_script_ends_when_the_runner_is_killed(scripts: Scripts, way: str) -> None:
    temporary = scripts.home / "run" / "scripts"
    mark = f"3600.{secrets.randbelow(10**9)}"
    stays = f"setsid sleep {mark} &\ntouch output/begun\nsleep {mark}\n"
    pack = scripts.pack({"scripts/stays.sh": stays, "scripts/echo.py": ECHO_PY})
    work = scripts.work
    words = [sys.executable, "-c", RUNNER, str(pack.folder), str(work), way, str(scripts.home)]
    (work / "output").mkdir()
    runner = await asyncio.create_subprocess_exec(*words)
    try:
        await until("it to have begun", lambda: (work / "output" / "begun").exists())
        await until("both to sleep", lambda: len(living(mark)) >= 2)
        runner.kill()
        await runner.wait()
        await until("all of it to be gone", lambda: not living(mark))
    finally:
        if runner.returncode is None:
            runner.kill()
            await runner.wait()
    assert list(temporary.glob("butlers-script-*"))
    await scripts.run(pack, "echo", {})
    assert list(temporary.iterdir()) == [], "the next run clears what the dead one left"
