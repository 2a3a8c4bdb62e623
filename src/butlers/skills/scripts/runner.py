"""Run a skill's script in a sandbox, with the variables that its skill declares and no others.

The script runs from a copy of the skill that was verified against its hash and is removed afterwards.
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
from butlers.skills.skill import BUILT_IN, Pack, SkillSpec
from butlers.skills.tree import translate_os_errors, walk

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
# Variables that the runner sets for scripts.
ACCESS = "BUTLERS_ACCESS"
CALLBACK_URL, CALLBACK_TOKEN = "BUTLERS_URL", "BUTLERS_TOKEN"
_MAX_ARGUMENTS = 1024 * 1024
_MAX_WORD = 100_000  # below the kernel's limit for one argument
_FROM_STDIN = "-"
# Variables that a skill cannot declare: our credentials, and those that decide which code runs.
_RESERVED = frozenset(
    {"PATH", "HOME", "TMPDIR", "LANG", "TRACEPARENT", "ENV", "BASH_ENV", "NODE_OPTIONS"}
)
_RESERVED_PREFIXES = ("BUTLERS_", "DATABASE_URL", "MCP_SERVERS", "LD_", "DYLD_", "PYTHON")

# An object is passed as JSON, a list of texts as separate arguments.
Arguments = Mapping[str, Any] | Sequence[str]


@dataclass(frozen=True, slots=True)
class CallbackAccess:
    """The butler's URL, and a token for some of its tools that is valid while the script runs."""

    url: str
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """One run of a script in the folder ``work``.

    ``variables`` may hold more than the skill declares; the script gets the declared ones.
    """

    script: str
    arguments: Arguments
    work: Path
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    access: Access = Access.SEALED
    limits: ScriptLimits = field(default_factory=ScriptLimits)
    callback: CallbackAccess | None = None  # for built-in packs only


@dataclass(frozen=True, slots=True)
class ScriptRunner:
    """``home`` is hidden from every script; ``search_path`` is used to find interpreters."""

    home: Path
    search_path: str = DEFAULT_PATH

    async def run(self, pack: Pack, run: ScriptRun) -> ScriptAnswer:
        """Return the script's answer, also if the script failed. Raise if it gave no answer."""
        script = find_script(pack, run.script)
        words, stdin = _encode_arguments(run.arguments)
        variables, missing = declared_variables(pack.skill, run.variables)
        hidden = (run.callback.token,) if run.callback else ()
        mask = SecretMask.of((*secrets_of(pack.skill, variables), *hidden))
        command = await asyncio.to_thread(interpreter, script, pack.skill, self.search_path)
        with scratch_folder() as scratch:
            copy = await asyncio.to_thread(_script_copy, pack, scratch, script)
            argv = (*command, str(copy / script), *words)
            env = base_environment(self.search_path, scratch, run.access) | variables
            if run.callback:
                env |= {CALLBACK_URL: run.callback.url, CALLBACK_TOKEN: run.callback.token}
            work = run.work.resolve()
            argv = await asyncio.to_thread(sandboxed, argv, work, scratch, self.home.resolve())
            ended = await _run(ProcessCommand(argv, env, work, stdin), run.limits, script)
        _raise_if_ended_early(ended, script, run.limits, mask)
        assert ended.exit.code is not None
        return parse_answer(ended.exit.code, ended.stdout, ended.stderr, mask, missing)


def base_environment(search_path: str, scratch: Path, access: Access) -> dict[str, str]:
    """Return the variables that every script and server of a skill gets."""
    return {
        "PATH": search_path,
        "LANG": "C.UTF-8",
        "HOME": str(scratch / "home"),
        "TMPDIR": str(scratch / "tmp"),
        ACCESS: str(access),
        **traceparent_environment(),
    }


def find_script(pack: Pack, wanted: str) -> str:
    """Return the script with this path, file name or stem. Declared scripts hide undeclared ones."""
    scripts = pack.skill.scripts or tuple(
        entry.path for entry in walk(pack.folder).files() if script_language(entry.path) is not None
    )
    paths = {script: PurePosixPath(script) for script in scripts}
    for names in (
        {script: script for script in scripts},
        {script: path.name for script, path in paths.items()},
        {script: path.stem for script, path in paths.items()},
    ):
        found = [script for script, name in names.items() if name == wanted]
        if len(found) == 1:
            return found[0]
        if found:
            raise SkillScriptNotFound(
                f"{pack.skill.label} has several scripts named {wanted!r}",
                hint=f"use the path: {', '.join(found)}",
            )
    hint = f"available: {', '.join(scripts)}" if scripts else "the skill has no scripts"
    raise SkillScriptNotFound(f"{pack.skill.label} has no script {wanted!r}", hint=hint)


def _encode_arguments(arguments: Arguments) -> tuple[tuple[str, ...], bytes]:
    """Return the command-line arguments and stdin. A script may read its JSON from either."""
    try:
        written = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        stdin = written.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise SkillScriptError(f"the arguments are not valid JSON: {error}") from error
    if len(stdin) > _MAX_ARGUMENTS:
        raise SkillScriptError(
            f"the arguments are larger than {_MAX_ARGUMENTS // 1024} KB",
            hint="put the data into a file, and pass its path",
        )
    if isinstance(arguments, Mapping):
        # A script that only reads its command line must fail, not run without arguments.
        return (written if len(stdin) <= _MAX_WORD else _FROM_STDIN,), stdin
    if any(
        not isinstance(word, str) or "\0" in word or len(word) > _MAX_WORD for word in arguments
    ):
        raise SkillScriptError(
            "arguments must be an object or a list of texts",
            hint='such as \'{"date": "2026-02-09"}\'',
        )
    return tuple(arguments), b""


def declared_variables(
    skill: SkillSpec, variables: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the declared variables that have a value, and the names of those without."""
    for name in skill.env_vars:
        if name in _RESERVED or name.startswith(_RESERVED_PREFIXES):
            raise SkillScriptError(
                f"{skill.label} declares {name}, which is reserved",
                hint="its author must remove the name from envVars",
            )
    given = {name: str(variables[name]) for name in skill.env_vars if variables.get(name)}
    return given, tuple(name for name in skill.env_vars if name not in given)


def secrets_of(skill: SkillSpec, variables: Mapping[str, str]) -> Iterator[str]:
    """Return the values that must not appear in an answer."""
    settings = SETTINGS if skill.owner == BUILT_IN else frozenset[str]()
    return (value for name, value in variables.items() if name not in settings)


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
        raise SkillScriptNotFound(f"{pack.skill.label} declares {script}, which does not exist")
    return copy


async def _run(command: ProcessCommand, limits: ScriptLimits, script: str) -> ProcessEnd:
    try:
        return await run_script(command, limits)
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise SkillInterpreterMissing(f"{script} could not be started: {error}") from error
    except (OSError, ValueError) as error:
        raise SkillScriptError(f"{script} could not be started: {error}") from error


def _raise_if_ended_early(
    ended: ProcessEnd, script: str, limits: ScriptLimits, mask: SecretMask
) -> None:
    lines = mask.text(ended.stderr.decode("utf-8", "replace")).strip().splitlines()
    last = f"; last line of stderr: {lines[-1]}" if lines else ""
    match ended.reason:
        case EndReason.TOOK_TOO_LONG:
            raise SkillScriptTimeout(f"{script} was stopped after {limits.seconds:g} s{last}")
        case EndReason.OUTPUT_TOO_LARGE:
            raise SkillScriptOutputTooLarge(
                f"{script} wrote more than {limits.output // 1024} KB and was stopped{last}"
            )
