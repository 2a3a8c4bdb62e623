"""Packs with scripts for tests, registered in a home of their own, and a runner for them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from butlers.domain.session import Access
from butlers.process.runner import ScriptLimits
from butlers.skills.reader import read_skill
from butlers.skills.registry.new_skill import NewSkill
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.scripts.answer import ScriptAnswer
from butlers.skills.scripts.runner import Arguments, ScriptRun, ScriptRunner
from butlers.skills.skill import Pack
from support.skills import write_pack


@dataclass(frozen=True)
class Scripts:
    """A home, a butler's folder, and what runs in it."""

    root: Path
    search_path: str = os.environ["PATH"]

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def work(self) -> Path:
        folder = self.root / "butler"
        folder.mkdir(exist_ok=True)
        return folder

    @property
    def registry(self) -> SkillRegistry:
        return SkillRegistry(self.home)

    def pack(self, files: dict[str, str | bytes], **fields: Any) -> Pack:
        """A registered pack of these scripts."""
        scripts = [path for path in files if path.startswith("scripts/")]
        if fields.get("envVars"):
            files = {**files, ".env.example": "# see the manual\n"}
        written = {"scripts": scripts, "owner": "me", **fields}
        folder = write_pack(self.root / "source" / "a-pack", files, id="a-pack", **written)
        return self.registered(self.registry.register(NewSkill(folder)).id)

    def registered(self, name: str) -> Pack:
        found = self.registry.get(name)
        folder = self.registry.path(name, found.latest)
        skill = read_skill(folder).skill
        assert skill is not None
        return Pack(folder, skill, found.release(None).digest)

    async def run(
        self,
        pack: Pack,
        script: str,
        arguments: Arguments | None = None,
        variables: Mapping[str, str] | None = None,
        *,
        access: Access = Access.WORKSPACE,
        limits: ScriptLimits | None = None,
        work: Path | None = None,
    ) -> ScriptAnswer:
        call = ScriptRun(
            script,
            {} if arguments is None else arguments,
            work or self.work,
            variables or {},
            access,
            limits or ScriptLimits(),
            agreed=pack.digest,
        )
        return await ScriptRunner(self.home, self.search_path).run(pack, call)


def living(mark: str) -> list[int]:
    """The processes whose command line holds the mark; those that have ended do not count."""
    return [pid for pid, command in _commands() if mark.encode() in command]


def _commands() -> Iterator[tuple[int, bytes]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with _ignoring_the_gone():
                yield int(folder.name), (folder / "cmdline").read_bytes()


@contextmanager
def _ignoring_the_gone() -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, ProcessLookupError):
        return
