"""One butler's configuration, from the butler.toml in its folder."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import Field

from butlers.config.document import Document
from butlers.config.sections import (
    SHARED_DATABASE,
    Access,
    BudgetConfig,
    BufferConfig,
    ButlerFile,
    ButlerSection,
    DatabaseSection,
    DeliveryConfig,
    EnvConfig,
    FreeTables,
    LoggingConfig,
    RuntimeConfig,
    RuntimeType,
    ScheduleConfig,
    SchedulerConfig,
    ShutdownConfig,
    SkillsConfig,
    StorageConfig,
    SwitchboardConfig,
    TriageConfig,
)
from butlers.config.settings import Settings
from butlers.config.values import ButlerName, Port, Section, Timezone
from butlers.domain.json_safe import FrozenDict

__all__ = [
    "CONFIG_FILE",
    "Access",
    "BudgetConfig",
    "BufferConfig",
    "ButlerConfig",
    "ButlerKind",
    "DatabaseConfig",
    "DeliveryConfig",
    "EnvConfig",
    "LoggingConfig",
    "RuntimeConfig",
    "RuntimeType",
    "ScheduleConfig",
    "SchedulerConfig",
    "ShutdownConfig",
    "SkillsConfig",
    "StorageConfig",
    "SwitchboardConfig",
    "TriageConfig",
    "load_butler_config",
]

CONFIG_FILE = "butler.toml"


class ButlerKind(StrEnum):
    SWITCHBOARD = "switchboard"
    MESSENGER = "messenger"
    DOMAIN = "domain"


@dataclass(frozen=True, slots=True)
class DatabaseConfig:
    """Where a butler's tables are: in a database of its own, or in its schema of a shared one."""

    name: str
    schema: str | None = None


class ButlerConfig(Section):
    name: ButlerName
    port: Port  # 0: any free one
    description: str = ""
    timezone: Timezone = "UTC"
    strict_modules: bool = False
    db: DatabaseConfig
    schedules: tuple[ScheduleConfig, ...] = ()
    # Not in the repr: ${VAR} may have put credentials in here.
    modules: FreeTables = Field(default=FrozenDict(), repr=False)
    channels: FreeTables = Field(default=FrozenDict(), repr=False)
    connectors: FreeTables = Field(default=FrozenDict(), repr=False)
    runtime: RuntimeConfig = RuntimeConfig()
    switchboard: SwitchboardConfig | None = None
    buffer: BufferConfig = BufferConfig()
    triage: TriageConfig = TriageConfig()
    delivery: DeliveryConfig = DeliveryConfig()
    env: EnvConfig = EnvConfig()
    shutdown: ShutdownConfig = ShutdownConfig()
    budget: BudgetConfig = BudgetConfig()
    skills: SkillsConfig = SkillsConfig()
    logging: LoggingConfig = LoggingConfig()
    storage: StorageConfig = StorageConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    directory: Path

    @property
    def role(self) -> ButlerKind:
        return (
            ButlerKind(self.name)
            if self.name in ("switchboard", "messenger")
            else ButlerKind.DOMAIN
        )

    @property
    def file(self) -> Path:
        return self.directory / CONFIG_FILE


def load_butler_config(
    directory: Path, settings: Settings, *, default_timezone: str = "UTC"
) -> ButlerConfig:
    """The configuration in this folder, or a ConfigError that says what to change where."""
    folder = directory.absolute()
    document = Document.read(
        folder / CONFIG_FILE,
        settings.environ,
        missing_hint=f"`butlers init {folder.name}` makes one",
    )
    file = document.validate(ButlerFile, port_offset=settings.port_offset)
    return _assemble(file, folder, settings.home, default_timezone)


def _assemble(file: ButlerFile, folder: Path, home: Path, default_timezone: str) -> ButlerConfig:
    butler = file.butler
    return ButlerConfig(
        name=butler.name,
        port=butler.port,
        description=butler.description,
        timezone=butler.timezone or default_timezone,
        strict_modules=butler.strict_modules,
        db=_database(butler.db, butler.name),
        schedules=butler.schedule,
        modules=file.modules,
        runtime=RuntimeConfig(type=file.runtime.type, **dict(butler.runtime)),
        switchboard=butler.switchboard,
        buffer=file.buffer,
        triage=file.triage,
        connectors=file.connectors,
        delivery=file.delivery,
        channels=file.channels,
        env=butler.env,
        shutdown=_shutdown(butler),
        budget=butler.budget,
        skills=file.skills,
        logging=butler.logging,
        storage=StorageConfig(blob_dir=home / butler.storage.blob_dir),
        scheduler=butler.scheduler,
        directory=folder,
    )


def _database(section: DatabaseSection, butler: str) -> DatabaseConfig:
    own = f"butler_{butler.replace('-', '_')}"
    default = own if section.schema_name is None else SHARED_DATABASE
    return DatabaseConfig(name=section.name or default, schema=section.schema_name)


def _shutdown(butler: ButlerSection) -> ShutdownConfig:
    if butler.shutdown_timeout_s is None:
        return butler.shutdown
    return ShutdownConfig(timeout_s=butler.shutdown_timeout_s)
