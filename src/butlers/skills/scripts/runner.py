"""Run a skill's script in a sandbox, with the variables that its skill declares and no others.

The script runs from a copy of the skill that lies in our home, which no sandbox shows. The copy is verified
against the skill's hash as it is written, mounted read-only for this run alone, and removed afterwards.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from butlers.domain.errors import (
    SkillInterpreterMissing,
    SkillSandboxMissing,
    SkillScriptError,
    SkillScriptNotFound,
    SkillScriptOutputTooLarge,
    SkillScriptTimeout,
)
from butlers.domain.session import Access
from butlers.process.runner import EndReason, ProcessCommand, ProcessEnd, ScriptLimits, run_script
from butlers.process.sandbox import Sandbox, loopback_ports, sandbox_problem
from butlers.skills.names import is_reserved_variable, script_language
from butlers.skills.registry.built_in import SETTINGS, is_outward
from butlers.skills.scripts.answer import ScriptAnswer, SecretMask, parse_answer
from butlers.skills.scripts.interpreters import interpreter
from butlers.skills.scripts.space import (
    OUTPUT_FOLDER,
    ScriptSpace,
    VerifiedCopy,
    output_folder,
    scratch_folder,
    verified_copy,
)
from butlers.skills.skill import BUILT_IN, Pack, SkillSpec
from butlers.skills.tree import walk

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
# Variables that the runner sets for scripts of built-in packs.
CALLBACK_URL, CALLBACK_TOKEN = "BUTLERS_URL", "BUTLERS_TOKEN"
_MAX_ARGUMENTS = 1024 * 1024
_MAX_WORD = 100_000  # below the kernel's limit for one argument
_FROM_STDIN = "-"
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

    ``variables`` may hold more than the skill declares; the script gets the declared ones. ``agreed`` is the
    hash of the skill that the owner has agreed to: with any other, the script gets neither variables nor the
    network.
    """

    script: str
    arguments: Arguments
    work: Path
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    access: Access = Access.SEALED
    limits: ScriptLimits = field(default_factory=ScriptLimits)
    callback: CallbackAccess | None = None  # for built-in packs only
    agreed: str | None = None


@dataclass(frozen=True, slots=True)
class ScriptRunner:
    """``home`` is hidden from every script; ``search_path`` is used to find interpreters.

    ``sandbox_required``: refuse scripts from elsewhere where the system cannot make a sandbox.
    """

    home: Path
    search_path: str = DEFAULT_PATH
    sandbox_required: bool = True

    async def run(self, pack: Pack, run: ScriptRun) -> ScriptAnswer:
        """Return the script's answer, also if the script failed. Raise if it gave no answer."""
        script = find_script(pack, run.script)
        words, stdin = _encode_arguments(run.arguments)
        with scratch_folder(self.home) as scratch:
            walled, command, copy = await asyncio.to_thread(self._prepare, pack, scratch, script)
            agreed = run.agreed is not None and copy.digest == run.agreed
            variables, missing = declared_variables(pack.skill, run.variables if agreed else {})
            hidden = (run.callback.token,) if run.callback else ()
            mask = SecretMask.of((*secrets_of(pack.skill, variables), *hidden))
            space = ScriptSpace(scratch, copy, run.work.resolve(), walled, run.access)
            space.make_folders()
            # A shipped pack that works on the butler's whole folder needs no other one to write.
            output = space.work if agreed and is_outward(pack.skill) else output_folder(space.work)
            env = self._environment(space, run, output) | variables
            network = agreed and (pack.skill.network or is_outward(pack.skill))
            box = self._sandbox(space, command[0], run, output, network) if walled else None
            argv = (*command, str(space.pack / script), *words)
            ended = await _run(
                ProcessCommand(argv, env, space.work, stdin, box), run.limits, script
            )
        _raise_if_ended_early(ended, script, run.limits, mask)
        assert ended.exit.code is not None
        return parse_answer(ended.exit.code, ended.stdout, ended.stderr, mask, missing)

    def _prepare(
        self, pack: Pack, scratch: Path, script: str
    ) -> tuple[bool, tuple[str, ...], VerifiedCopy]:
        walled = self.has_sandbox(pack)
        command = interpreter(script, pack.skill, self.search_path)
        return walled, command, _script_copy(pack, scratch, script)

    def has_sandbox(self, pack: Pack) -> bool:
        """Return whether there is a sandbox. Raise for code from elsewhere if there is none."""
        problem = sandbox_problem()
        if problem is None:
            return True
        from_elsewhere = pack.digest is not None and pack.skill.owner != BUILT_IN
        if from_elsewhere and self.sandbox_required:
            raise SkillSandboxMissing(
                f"{pack.skill.label} does not run: this system cannot make a sandbox ({problem})"
            )
        return False

    def _environment(self, space: ScriptSpace, run: ScriptRun, output: Path) -> dict[str, str]:
        env = space.environment(self.search_path) | {OUTPUT_FOLDER: str(output)}
        if run.callback:
            env |= {CALLBACK_URL: run.callback.url, CALLBACK_TOKEN: run.callback.token}
        return env

    def _sandbox(
        self, space: ScriptSpace, program: str, run: ScriptRun, output: Path, network: bool
    ) -> Sandbox:
        ports = () if run.callback is None else loopback_ports(run.callback.url)
        return space.sandbox(
            program,
            hidden=self.hidden,
            ports=None if network else ports,
            cpu_s=int(run.limits.seconds) + 1,
            writable=(output,),
        )

    @property
    def hidden(self) -> tuple[Path, ...]:
        """Folders that no script sees, except for what is mounted inside them."""
        return (self.home, Path.home())


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
        if is_reserved_variable(name):
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


def _script_copy(pack: Pack, scratch: Path, script: str) -> VerifiedCopy:
    copy = verified_copy(pack, scratch)
    if not (copy.path / script).is_file():
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
