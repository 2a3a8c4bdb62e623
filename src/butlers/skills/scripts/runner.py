"""The one script runner: a skill's script gets what its skill declares, and nothing else.

What runs is a copy of the skill, verified against its hash, in a folder that is gone afterwards.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from butlers.domain.errors import (
    SkillInterpreterMissing,
    SkillScriptError,
    SkillScriptNotFound,
    SkillScriptOutputTooLarge,
    SkillScriptTimeout,
)
from butlers.domain.session import Access
from butlers.domain.trace import traceparent_environment
from butlers.process.leftovers import temporary_folder
from butlers.process.runner import EndReason, ProcessCommand, ProcessEnd, ScriptLimits, run_script
from butlers.process.sandbox import sandboxed
from butlers.skills.names import script_language
from butlers.skills.registry import packs
from butlers.skills.registry.built_in import SETTINGS
from butlers.skills.scripts.answer import ScriptAnswer, SecretMask, parse_answer
from butlers.skills.scripts.interpreters import interpreter
from butlers.skills.skill import BUILT_IN, SkillSpec
from butlers.skills.tree import translate_os_errors, walk

PATH = "/usr/local/bin:/usr/bin:/bin"  # where the host has none
ACCESS = "BUTLERS_ACCESS"  # the variable that tells a script what its caller may touch
DOOR_URL, DOOR_TOKEN = "BUTLERS_URL", "BUTLERS_TOKEN"
_LANG = "C.UTF-8"
_MAX_ARGUMENTS = 1024 * 1024
_MAX_WORD = 100_000  # the kernel takes a little more in one word
_BY_STDIN = "-"
# What opens our own doors is nobody's to declare.
_OURS = ("BUTLERS_", "DATABASE_URL", "MCP_SERVERS")
# And what decides which code runs, and where, is the runner's.
_RUNNERS = frozenset(
    {"PATH", "HOME", "TMPDIR", "LANG", "TRACEPARENT", "ENV", "BASH_ENV", "NODE_OPTIONS"}
)
_LOADERS = ("LD_", "DYLD_", "PYTHON")

# An object is written as JSON; a list of texts is handed over word by word.
Arguments = Mapping[str, Any] | Sequence[str]


@dataclass(frozen=True, slots=True)
class Pack:
    """A skill that lies in a folder. ``digest`` is what was registered; a butler's own skill has none."""

    folder: Path
    skill: SkillSpec
    digest: str | None = None
    shared: Path | None = None


@dataclass(frozen=True, slots=True)
class CallbackAccess:
    """The butler's own address, and a token that opens some of its tools while the script runs."""

    url: str
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ScriptRequest:
    """One run. ``variables`` may hold more than the skill declares; it gets what it declares.

    ``work`` is the folder that the script works in: the butler's.
    """

    script: str
    arguments: Arguments
    work: Path
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    access: Access = Access.SEALED
    limits: ScriptLimits = field(default_factory=ScriptLimits)
    door: CallbackAccess | None = None  # for packs of ours that work on what the butler keeps


@dataclass(frozen=True, slots=True)
class ScriptRunner:
    """``home`` is ours, which no script may look into; ``search_path`` finds its interpreter."""

    home: Path
    search_path: str = PATH

    async def run(self, pack: Pack, call: ScriptRequest) -> ScriptAnswer:
        """The script's parse_answer, also when it failed. What kept it from answering is raised."""
        script = find_script(pack, call.script)
        words, stdin = _handed_over(call.arguments)
        variables, missing = declared_variables(pack.skill, call.variables)
        hidden = (call.door.token,) if call.door else ()
        mask = SecretMask.of((*secrets_of(pack.skill, variables), *hidden))
        starts = await asyncio.to_thread(interpreter, script, pack.skill, self.search_path)
        with scratch_folder() as scratch:
            copy = await asyncio.to_thread(_script_copy, pack, scratch, script)
            argv = (*starts, str(copy / script), *words)
            env = environment(self.search_path, scratch, call.access) | variables | _door(call.door)
            work = call.work.resolve()
            walled = await asyncio.to_thread(sandboxed, argv, work, scratch, self.home.resolve())
            ended = await _run(ProcessCommand(walled, env, work, stdin), call.limits, script)
        _refuse_unless_left(ended, script, call.limits, mask)
        assert ended.exit.code is not None
        return parse_answer(ended.exit.code, ended.stdout, ended.stderr, mask, missing)


def environment(search_path: str, scratch: Path, access: Access) -> dict[str, str]:
    """What everything that a skill runs has, whatever it declares."""
    return {
        "PATH": search_path,
        "LANG": _LANG,
        "HOME": str(scratch / "home"),
        "TMPDIR": str(scratch / "tmp"),
        ACCESS: str(access),
        **traceparent_environment(),
    }


def _door(door: CallbackAccess | None) -> dict[str, str]:
    return {DOOR_URL: door.url, DOOR_TOKEN: door.token} if door else {}


def find_script(pack: Pack, wanted: str) -> str:
    """The script of this path, file name or bare name. Where a manifest lists some, there are no others."""
    scripts = pack.skill.scripts or tuple(
        entry.path for entry in walk(pack.folder).files() if script_language(entry.path) is not None
    )
    for said in (_path, _file_name, _bare_name):
        found = [script for script in scripts if said(script) == wanted]
        if len(found) == 1:
            return found[0]
        if found:
            raise SkillScriptNotFound(
                f"{pack.skill.label} has several scripts {wanted!r}",
                hint=f"say which: {', '.join(found)}",
            )
    there = f"there are: {', '.join(scripts)}" if scripts else "it has no script at all"
    raise SkillScriptNotFound(f"{pack.skill.label} has no script {wanted!r}", hint=there)


def _path(script: str) -> str:
    return script


def _file_name(script: str) -> str:
    return PurePosixPath(script).name


def _bare_name(script: str) -> str:
    return PurePosixPath(script).stem


def _handed_over(arguments: Arguments) -> tuple[tuple[str, ...], bytes]:
    """The words after the script, and its stdin. A script reads its JSON from either."""
    try:
        written = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        stdin = written.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise SkillScriptError(f"the arguments are no JSON: {error}") from error
    if len(stdin) > _MAX_ARGUMENTS:
        raise SkillScriptError(
            f"the arguments have more than {_MAX_ARGUMENTS // 1024} KB",
            hint="put the data into a file, and name the file",
        )
    if isinstance(arguments, Mapping):
        # One that only looks at its command line must fail then, not run without arguments.
        return (written if len(stdin) <= _MAX_WORD else _BY_STDIN,), stdin
    if any(
        not isinstance(word, str) or "\0" in word or len(word) > _MAX_WORD for word in arguments
    ):
        raise SkillScriptError(
            "arguments are an object, or a list of texts", hint='such as \'{"date": "2026-02-09"}\''
        )
    return tuple(arguments), b""


def declared_variables(
    skill: SkillSpec, variables: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Those that the skill declares and that have a value, and the names of those without."""
    for name in skill.env_vars:
        if name in _RUNNERS or name.startswith((*_OURS, *_LOADERS)):
            raise SkillScriptError(
                f"{skill.label} declares {name}, which no script is given",
                hint="only its author can mend it: take the name out of its envVars",
            )
    given = {name: str(variables[name]) for name in skill.env_vars if variables.get(name)}
    return given, tuple(name for name in skill.env_vars if name not in given)


def secrets_of(skill: SkillSpec, variables: Mapping[str, str]) -> Iterator[str]:
    told = SETTINGS if skill.owner == BUILT_IN else frozenset[str]()
    return (value for name, value in variables.items() if name not in told)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    with (
        translate_os_errors(Path(tempfile.gettempdir())),
        temporary_folder("butlers-script-") as scratch,
    ):
        for name in ("home", "tmp", "pack"):
            (scratch / name).mkdir()
        yield scratch


def verified_copy(pack: Pack, scratch: Path) -> Path:
    copy = scratch / "pack" / pack.folder.name
    copy.mkdir()
    packs.copy_verified(pack.folder, copy, pack.digest, shared=pack.shared)
    return copy


def _script_copy(pack: Pack, scratch: Path, script: str) -> Path:
    copy = verified_copy(pack, scratch)
    if not (copy / script).is_file():
        raise SkillScriptNotFound(f"{pack.skill.label} declares {script}, and has no such file")
    return copy


async def _run(command: ProcessCommand, limits: ScriptLimits, script: str) -> ProcessEnd:
    try:
        return await run_script(command, limits)
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise SkillInterpreterMissing(f"{script} could not be started: {error}") from error
    except (OSError, ValueError) as error:
        raise SkillScriptError(f"{script} could not be started: {error}") from error


def _refuse_unless_left(
    ended: ProcessEnd, script: str, limits: ScriptLimits, mask: SecretMask
) -> None:
    said = mask.text(ended.stderr.decode("utf-8", "replace")).strip()
    last = f"; its last words: {said.splitlines()[-1]}" if said else ""
    match ended.reason:
        case EndReason.TOOK_TOO_LONG:
            raise SkillScriptTimeout(f"{script} was ended after {limits.seconds:g} s{last}")
        case EndReason.OUTPUT_TOO_LARGE:
            raise SkillScriptOutputTooLarge(
                f"{script} said more than {limits.output // 1024} KB and was ended{last}"
            )
