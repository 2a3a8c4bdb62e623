"""The fixture butler's modules, driven through their phases against a real database."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from butlers.config.butler import ButlerConfig, load_butler_config
from butlers.config.settings import Settings
from butlers.db.database import Database
from butlers.db.migrations import Chain, migrate, shipped_versions
from butlers.domain.module import FailurePhase
from butlers.modules.lifecycle import ModuleSet
from butlers.secrets.credentials import CredentialStore
from butlers.secrets.master_key import MasterKey
from butlers.tools.declaration import ToolSpec

POSTBOX = Path(__file__).resolve().parents[1] / "fixtures" / "modules" / "postbox"
GOOD = {"calendar": "", "email": 'address = "postbox@example.org"'}

# Settings that make the email module fail in each phase, and the resulting error.
WAYS = {
    FailurePhase.CONFIG: ('adress = "postbox@example.org"', "did you mean 'address'"),
    FailurePhase.CREDENTIALS: (
        'address = "postbox@example.org"\npassword_env = "NOT_SET"',
        "not set: EMAIL_PASSWORD",
    ),
    FailurePhase.MIGRATION: (
        'address = "postbox@example.org"\nfail = "migration"',
        'relation "email_half" already exists',
    ),
    FailurePhase.STARTUP: (
        'address = "postbox@example.org"\nfail = "startup"',
        "ConnectionError: the mail server does not answer",
    ),
    FailurePhase.TOOLS: (
        'address = "postbox@example.org"\nfail = "undeclared tool"',
        "registers the undeclared tool 'smuggled_tool'",
    ),
}

# A module without dependents.
ALONE = '''
from butlers.sdk import SESSIONS, CallContext, Module, tool

@tool(callers=SESSIONS)
async def alone_ping(ctx: CallContext) -> dict[str, str]:
    """Answer."""
    return {"answer": "pong"}

class AloneModule(Module):
    name = "alone"
    tools = (alone_ping,)
'''


def write_postbox(
    directory: Path,
    modules: Mapping[str, str] = GOOD,
    *,
    name: str = "postbox",
    extra: str = "",
    code: Mapping[str, str] | None = None,
) -> None:
    """A copy of the fixture butler. ``modules``: sections and their lines; ``code``: more modules."""
    shutil.copytree(POSTBOX, directory, ignore=shutil.ignore_patterns("__pycache__"))
    sections = "\n".join(f"[modules.{key}]\n{lines}" for key, lines in modules.items())
    (directory / "butler.toml").write_text(
        f'[butler]\nname = "{name}"\nport = 0\n{extra}\n[runtime]\ntype = "reflex"\n{sections}\n'
    )
    for module, text in (code or {}).items():
        (directory / "modules" / module).mkdir(exist_ok=True)
        (directory / "modules" / module / "__init__.py").write_text(text)


@dataclass
class ModuleHarness:
    config: ButlerConfig
    database: Database
    environ: dict[str, str] = field(default_factory=dict)
    applied: list[str] = field(default_factory=list)
    specs: list[tuple[str, ToolSpec]] = field(default_factory=list)
    modules: ModuleSet = field(init=False)

    @property
    def store(self) -> CredentialStore:
        return CredentialStore(
            self.database, MasterKey(bytes(32)), butler=self.config.name, environ=self.environ
        )

    def load(self, **limits: float) -> ModuleSet:
        loaded = ModuleSet.load(self.config)
        self.modules = ModuleSet(loaded.modules, self.config, **limits)
        return self.modules

    async def bring_up(self, **limits: float) -> ModuleSet:
        """The phases as a butler runs them."""
        modules = self.load(**limits)
        await modules.validate_config()
        await modules.migrate(self.run_chain, shipped_versions())
        await modules.check_credentials(self.store)
        await modules.start(self.database, self.store)
        self.specs = await modules.collect_tools(self.database)
        return modules

    async def run_chain(self, chain: Chain) -> None:
        self.applied += await migrate(self.database.login, [chain])

    @property
    def tools(self) -> list[str]:
        return [spec.name for _, spec in self.specs]

    @property
    def lifecycle(self) -> list[str]:
        """Return the events of the fixture's modules, in order."""
        name = f"butlers_roster_{self.config.name}.modules.email"
        return list(sys.modules[name].lifecycle)

    async def tables(self) -> set[str]:
        async with self.database.transaction() as connection:
            rows = await connection.fetch(
                "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
            )
        return {row["tablename"] for row in rows}


def load_config(directory: Path) -> ButlerConfig:
    return load_butler_config(directory, Settings.from_environ({}))


def events(log: list[Any], *names: str) -> list[tuple[str, str]]:
    """The lines of a captured log with these names: the event and the module it is about."""
    return [(line["event"], line["module"]) for line in log if line["event"] in names]
