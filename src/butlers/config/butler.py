"""One butler's configuration: the butler.toml in its folder, one frozen model per table.

For a shipped butler, a person's changes are merged over it (``overrides.py``).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from butlers.config.document import Document, Problem, refuse
from butlers.config.folders import CONFIG_FILE
from butlers.config.overrides import find_override
from butlers.config.settings import Settings
from butlers.config.values import (
    ButlerName,
    ConfigTable,
    Count,
    DatabaseName,
    FrozenTable,
    Integer,
    Port,
    SchemaName,
    Seconds,
    ShiftedPort,
    ShiftedUrl,
    Text,
    Timezone,
    VariableName,
)
from butlers.domain.json_safe import FrozenDict, freeze

Access = Literal["workspace", "sealed", "full"]
# A runtime's name is that of its folder: configuration is read before a runtime may be imported.
_RUNTIMES = (Path(__file__).parents[1] / "runtimes").glob("*/__init__.py")
_CLIS = sorted(file.parent.name.replace("_", "-") for file in _RUNTIMES)
if TYPE_CHECKING:
    RuntimeType = str
else:
    RuntimeType = Literal[("auto", *_CLIS, "reflex")]

FreeTables = Annotated[Mapping[str, Mapping[str, Any]], AfterValidator(freeze)]

SHARED_DATABASE = "butlers"
_SWITCHBOARD_URL = "http://127.0.0.1:40100/mcp"
_QUIET_HOURS = re.compile(r"([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d")
_ROUTE_CONTRACT = re.compile(r"route\.v([0-9]{1,4})")


class DatabaseSection(ConfigTable):
    name: DatabaseName | None = None
    """Database of the butler. Default: `butlers` with a `schema`, else a database of its own,
    `butler_<name>`."""
    # `schema` is a method of every pydantic model.
    schema_name: SchemaName | None = Field(default=None, alias="schema")
    """Schema in the shared database."""

    @model_validator(mode="after")
    def _shared_needs_schema(self) -> Self:
        if self.name == SHARED_DATABASE and self.schema_name is None:
            raise refuse(
                f"{SHARED_DATABASE!r} is the database that butlers share, and no schema is set",
                at=("name",),
                hint="add `schema = ...`, or remove `name` to use a separate database",
            )
        return self


class ScheduleConfig(ConfigTable):
    name: Text
    """Name of the schedule; an override changes the shipped schedule of the same name."""
    cron: Text
    """Five cron fields, such as "0 7 * * 1-5"."""
    dispatch_mode: Literal["prompt", "job"] = "prompt"
    """`prompt` starts a session; `job` runs a Python function of the butler without a model."""
    prompt: Text | None = None
    """Task of the session; required in the mode `prompt`."""
    job_name: Text | None = None
    """Name of the function; required in the mode `job`."""
    job_args: FrozenTable = FrozenDict()
    """Arguments of the function."""
    timezone: Timezone | None = None
    """Time zone of `cron`. Default: the butler's."""
    check: Text | None = None
    """A job that runs first, without a model: the session is started only if it returns a true value."""
    missed: Literal["skip", "once", "ask"] = "skip"
    """A time at which the butler did not run is left out (`skip`), made up for once (`once`), or you
    are asked (`ask`)."""
    missed_within_s: Seconds | None = None
    """Times that lie further back are not made up for. Default: no limit."""

    @model_validator(mode="after")
    def _fits_dispatch_mode(self) -> Self:
        if self.dispatch_mode == "prompt":
            self._needs("prompt", without=("job_name", "job_args"))
        else:
            self._needs("job_name", without=("prompt",))
        return self

    def _needs(self, key: str, *, without: tuple[str, ...]) -> None:
        mode = self.dispatch_mode
        hint = (
            'a prompt starts a session; a job (dispatch_mode = "job") runs Python without a model'
        )
        if getattr(self, key) is None:
            raise refuse(f"{key} is required with dispatch_mode {mode!r}", at=(key,), hint=hint)
        for other in without:
            if other in self.model_fields_set:
                raise refuse(f"is not used with dispatch_mode {mode!r}", at=(other,), hint=hint)


class RuntimeSection(ConfigTable):
    model: Text | None = None
    """Model of the sessions, as the CLI calls it. Default: the CLI's own."""
    max_concurrent_sessions: Count = 1
    """Sessions of this butler that run at once."""
    max_queued: Annotated[Integer, Field(ge=0)] = 100
    """Sessions that may wait for their turn; a trigger beyond that is refused."""
    timeout_s: Seconds = 300
    """Longest duration of a session."""
    args: tuple[str, ...] = ()
    """Further arguments for the CLI."""
    access: Access = "workspace"
    """What a session of your own `butlers trigger` may touch: only the butler's tools (`sealed`), also
    the butler's folder and its skill scripts (`workspace`), or everything that its CLI can (`full`)."""
    schedule_access: Access = "sealed"
    """Access of sessions that a schedule starts."""
    routed_access: Access = "sealed"
    """Access of sessions that a message starts."""
    warm: Annotated[Integer, Field(ge=0)] = 0
    """Started CLI processes of this butler that wait for a message."""
    max_turns: Count | None = 50
    """Requests to the model in one session. The key broker enforces this limit, `max_tokens` and
    `max_usd`."""
    max_tool_calls: Count | None = 200
    """Tool calls of one session. The butler enforces this limit, with or without the key broker."""
    max_tokens: Count | None = None
    """Tokens of one session. Default: no limit."""
    max_usd: Annotated[Decimal, Field(gt=0)] | None = None
    """Dollars of one session. Default: no limit."""


class RuntimeTypeSection(ConfigTable):
    type: RuntimeType = "auto"
    """What runs the sessions. `auto` takes the first CLI that is installed and has a credential, else
    `reflex`, which answers fixed patterns without a model."""


class RuntimeConfig(RuntimeSection, RuntimeTypeSection):
    """[runtime] and [butler.runtime] together."""


def _contract_number(value: object) -> object:
    found = _ROUTE_CONTRACT.fullmatch(value) if isinstance(value, str) else None
    return int(found[1]) if found else value


RouteContract = Annotated[Count, BeforeValidator(_contract_number)]


class SwitchboardConfig(ConfigTable):
    """Address of the Switchboard, and this butler's entry in its registry."""

    url: ShiftedUrl = Field(default=_SWITCHBOARD_URL, validate_default=True)
    """Address of the Switchboard. A port on this machine is shifted by `BUTLERS_PORT_OFFSET`."""
    advertise: bool = True
    """Register with the Switchboard, so that messages reach the butler."""
    liveness_ttl_s: Seconds = 300
    """Without a sign of life for this long, the Switchboard counts the butler as gone."""
    route_contract_min: RouteContract = 1
    """Oldest version of `route.execute` that the butler accepts, as 1 or "route.v1"."""
    route_contract_max: RouteContract = 1
    """Newest version of `route.execute` that the butler accepts."""
    triggers: tuple[Text, ...] = ()
    """RE2 patterns; a message that matches one is for this butler."""

    @model_validator(mode="after")
    def _min_below_max(self) -> Self:
        if self.route_contract_min > self.route_contract_max:
            raise refuse("is above route_contract_max", at=("route_contract_min",))
        return self


class BufferConfig(ConfigTable):
    queue_capacity: Count = 100
    """Messages that may wait in the Switchboard; a sender gets an error for more, and tries again."""
    worker_count: Count = 4
    """Queue items that are worked on at once."""
    scanner_interval_s: Seconds = 30
    """Interval of looking for items whose worker died."""
    scanner_grace_s: Seconds = 10
    """Time after a worker's death before its items are taken over."""
    scanner_batch_size: Count = 50
    """Items that a worker claims at once."""
    max_consecutive_same_tier: Count = 10
    """Items of one priority in a row before a less urgent one is claimed."""


class TriageConfig(ConfigTable):
    """Inputs of the Switchboard's decision where a message goes."""

    history_minutes: Annotated[Integer, Field(ge=0)] = 15
    """Minutes of the conversation that are sent with a message."""
    history_messages: Annotated[Integer, Field(ge=0, le=200)] = 30
    """Most messages of the conversation that are sent with a message."""
    affinity_days: Annotated[Integer, Field(ge=0)] = 30
    """Days for which an email thread stays with its butler."""
    dedupe_window_s: Seconds = 300
    """For sources without message ids: equal texts within this time are one message."""


def _quiet_hours(value: str) -> str:
    start, _, end = value.partition("-")
    if not _QUIET_HOURS.fullmatch(value) or start == end:
        raise refuse(f"{value!r} is not a time span", hint='write it as "22:00-07:00"')
    return value


def _address(value: str) -> str:
    channel, _, target = value.partition(":")
    if not channel.strip() or not target.strip():
        raise refuse(f"{value!r} is not an address", hint='write it as "CHANNEL:ADDRESS"')
    return value


class DeliveryConfig(ConfigTable):
    """Limits of the Messenger."""

    reply_ttl_s: Seconds = 6 * 3600
    """An answer or a reaction that is older is not sent any more."""
    send_ttl_s: Seconds = 24 * 3600
    """Any other message that is older is not sent any more."""
    per_minute: Count = 60
    """Messages per minute to one destination of a channel, such as one webhook."""
    per_recipient_per_minute: Count = 10
    """Messages per minute to one recipient."""
    quiet_hours: Annotated[str, AfterValidator(_quiet_hours)] | None = None
    """Hold back messages that no one waits for, such as "22:00-07:00", in the butler's time zone.
    Default: none."""
    owner: Annotated[str, AfterValidator(_address)] | None = None
    """Where messages to you go that answer none of yours: CHANNEL:ADDRESS, such as "telegram:4711".
    Default: the console."""


class EnvConfig(ConfigTable):
    required: tuple[VariableName, ...] = ()
    """Variables that sessions and scripts get; the butler does not start if one is not set."""
    optional: tuple[VariableName, ...] = ()
    """Variables that sessions and scripts get if they are set."""


class ShutdownConfig(ConfigTable):
    timeout_s: Seconds = 30
    """Time for running work to end when the butler is stopped."""


class BudgetConfig(ConfigTable):
    """Daily spending limits of this butler; None: no limit."""

    daily_usd: Annotated[Decimal, Field(ge=0)] | None = None
    """Dollars that the butler's sessions may cost per day, by the prices in `prices.toml`. Default: no
    limit."""
    daily_tokens: Annotated[Integer, Field(ge=0)] | None = None
    """Tokens that the butler's sessions may use per day. Default: no limit."""
    at_limit: Literal["wait", "refuse"] = "wait"
    """A message over the budget waits until the next day (`wait`) or is refused at once (`refuse`)."""


class SkillsConfig(ConfigTable):
    packs: tuple[Text, ...] = ()
    """Registered skill packs that the butler uses, such as "social-media@^1"."""
    disclosure: Literal["full", "summary"] = "full"
    """The prompt has each pack's whole text (`full`) or its summary (`summary`)."""
    allow_soul_edit: bool = False
    """Sessions may change the butler's soul, the text of its character, with `soul_edit` and `soul_undo`."""
    reflexes: bool = True
    """Answer by the reflexes of the butler's skills before any model is asked."""


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class LoggingConfig(ConfigTable):
    level: Annotated[
        Literal["debug", "info", "warning", "error", "critical"], BeforeValidator(_lower)
    ] = "info"
    """Least severity of the log lines that are written."""


FEWEST_DAYS = 7  # queued work may wait for days, and late repeats must still be recognized


def _usable_path(value: Path) -> Path:
    if "\0" in str(value):
        raise refuse("is not a path")
    if str(value).startswith("~"):
        raise refuse("'~' is not resolved here", hint="write ${HOME} instead of ~")
    return value


def _retention_days(days: int) -> int:
    if 0 < days < FEWEST_DAYS:
        raise refuse(f"is less than {FEWEST_DAYS}", hint="0 keeps everything forever")
    return days


class StorageConfig(ConfigTable):
    """Storage of files. A relative blob_dir is below BUTLERS_HOME; in a loaded config it is absolute."""

    blob_dir: Annotated[Path, AfterValidator(_usable_path)] = Path("data/blobs")
    """Folder of files that came with messages. A relative path is below `BUTLERS_HOME`."""
    keep_days: Annotated[Integer, Field(ge=0, le=36_500), AfterValidator(_retention_days)] = 0
    """Days to keep finished messages, deliveries and their files, at least 7; 0 keeps them forever. It
    must be longer than the Switchboard is ever down: a call that it repeats later runs again."""


class SchedulerConfig(ConfigTable):
    tick_interval_s: Seconds = 60
    """Longest interval of looking for due schedules."""
    heartbeat_interval_s: Seconds = 120
    """Interval of the health log lines."""


def _distinct_names(schedules: tuple[ScheduleConfig, ...]) -> tuple[ScheduleConfig, ...]:
    seen: set[str] = set()
    for index, schedule in enumerate(schedules):
        if schedule.name in seen:
            raise refuse(f"two schedules are named {schedule.name!r}", at=(index, "name"))
        seen.add(schedule.name)
    return schedules


class ButlerSection(ConfigTable):
    name: ButlerName
    """Name of the butler: lower-case letters, digits and `-`, a letter first, at most 40."""
    port: ShiftedPort
    """Port on this machine, to which `BUTLERS_PORT_OFFSET` is added. 0: any free port."""
    description: str = ""
    """What the butler is for. The Switchboard's classification reads it."""
    timezone: Timezone | None = None
    """IANA name of the butler's time zone. Default: that of `fleet.toml`."""
    strict_modules: bool = False
    """A module that fails ends the start, instead of being shown as failed."""
    db: DatabaseSection = DatabaseSection()
    schedule: Annotated[tuple[ScheduleConfig, ...], AfterValidator(_distinct_names)] = ()
    runtime: RuntimeSection = RuntimeSection()
    switchboard: SwitchboardConfig | None = None
    env: EnvConfig = EnvConfig()
    shutdown: ShutdownConfig = ShutdownConfig()
    shutdown_timeout_s: Seconds | None = None
    """Another name for `timeout_s` in `[butler.shutdown]`."""
    budget: BudgetConfig = BudgetConfig()
    logging: LoggingConfig = LoggingConfig()
    storage: StorageConfig = StorageConfig()
    scheduler: SchedulerConfig = SchedulerConfig()

    @model_validator(mode="after")
    def _switchboard_is_alone(self) -> Self:
        if self.name == "switchboard" and self.switchboard is not None:
            raise refuse(
                "the switchboard does not register with a switchboard",
                at=("switchboard",),
                hint="remove [butler.switchboard]",
            )
        return self

    @model_validator(mode="after")
    def _one_shutdown_timeout(self) -> Self:
        if self.shutdown_timeout_s is not None and self.shutdown.model_fields_set:
            raise refuse(
                "is also set as butler.shutdown.timeout_s",
                at=("shutdown_timeout_s",),
                hint="remove one of them",
            )
        return self


class ButlerFile(ConfigTable):
    """The whole file, as it is written."""

    butler: ButlerSection
    runtime: RuntimeTypeSection = RuntimeTypeSection()
    buffer: BufferConfig = BufferConfig()
    triage: TriageConfig = TriageConfig()
    delivery: DeliveryConfig = DeliveryConfig()
    skills: SkillsConfig = SkillsConfig()
    # Each module and each channel validates its own table.
    modules: FreeTables = FrozenDict()
    """`[modules.NAME]` switches a module on; the module validates the table."""
    channels: FreeTables = FrozenDict()
    """`[channels.NAME]`, only in the Messenger: channels that messages go out on."""
    connectors: FreeTables = FrozenDict()
    """`[connectors.NAME]`, only in the Switchboard: channels that messages come in on."""

    @model_validator(mode="before")
    @classmethod
    def _always_a_butler(cls, data: dict[str, Any]) -> dict[str, Any]:
        # For a file without [butler], report the missing keys and not just the table.
        return {"butler": {}, **data}

    @model_validator(mode="after")
    def _only_the_messenger_delivers(self) -> Self:
        for table in ("delivery", "channels"):
            if table in self.model_fields_set and self.butler.name != "messenger":
                raise refuse(
                    "only the messenger delivers",
                    at=(table,),
                    hint=f"move [{table}] to the messenger's butler.toml",
                )
        return self

    @model_validator(mode="after")
    def _only_the_switchboard_receives(self) -> Self:
        if "connectors" in self.model_fields_set and self.butler.name != "switchboard":
            raise refuse(
                "only the switchboard receives messages",
                at=("connectors",),
                hint="move [connectors] to the switchboard's butler.toml",
            )
        return self


# -- the whole configuration ------------------------------------------------------------------------


class ButlerKind(StrEnum):
    SWITCHBOARD = "switchboard"
    MESSENGER = "messenger"
    DOMAIN = "domain"


@dataclass(frozen=True, slots=True)
class DatabaseConfig:
    """Location of a butler's tables: a separate database, or a schema of the shared one."""

    name: str
    schema: str | None = None


class ButlerConfig(ConfigTable):
    name: ButlerName
    port: Port  # 0: any free port
    description: str = ""
    timezone: Timezone = "UTC"
    strict_modules: bool = False
    db: DatabaseConfig
    schedules: tuple[ScheduleConfig, ...] = ()
    # Not in the repr: the values may contain credentials from ${VAR}.
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
    override: Path | None = None  # the file with a person's changes to a shipped butler

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

    def document(self, data: Mapping[str, Any] = FrozenDict()) -> Document:
        """Return the files with data of one part of them, to report its problems with their lines."""
        return Document.around(self.file, self.override, data)


def read_butler_file(directory: Path, settings: Settings) -> tuple[Document, ButlerFile]:
    """Read and validate the configuration in this folder, as it is written."""
    folder = directory.absolute()
    document = Document.read(
        folder / CONFIG_FILE,
        settings.environ,
        missing_hint=f"create it with `butlers init {shlex.quote(folder.name)}`",
        override=find_override(folder, settings.home),
    )
    file = document.validate(ButlerFile, port_offset=settings.port_offset)
    if document.overlay is not None and file.butler.name != folder.name:
        problem = Problem(
            ("butler", "name"), "butler.name: a shipped butler keeps its name", "remove the line"
        )
        raise document.invalid([problem])
    return document, file


def load_butler_config(
    directory: Path, settings: Settings, *, default_timezone: str = "UTC"
) -> ButlerConfig:
    """Load the configuration in this folder, or raise a ConfigError with the place and a hint."""
    document, file = read_butler_file(directory, settings)
    config = _assemble(file, directory.absolute(), settings.home, default_timezone)
    return config.model_copy(update={"override": document.overlay and document.overlay.path})


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
        storage=butler.storage.model_copy(update={"blob_dir": home / butler.storage.blob_dir}),
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
