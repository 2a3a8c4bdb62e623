"""The tables of a butler.toml, one frozen model each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from butlers.config.document import refuse
from butlers.config.values import (
    ButlerName,
    Count,
    DatabaseName,
    FrozenTable,
    Integer,
    SchemaName,
    Seconds,
    Section,
    ShiftedPort,
    ShiftedUrl,
    Text,
    Timezone,
    VariableName,
)
from butlers.domain.json_safe import FrozenDict, freeze

Access = Literal["workspace", "sealed", "full"]
RuntimeType = Literal["auto", "claude-code", "codex", "gemini", "reflex"]

FreeTables = Annotated[Mapping[str, Mapping[str, Any]], AfterValidator(freeze)]

SHARED_DATABASE = "butlers"
_SWITCHBOARD_URL = "http://127.0.0.1:40100/mcp"
_QUIET_HOURS = re.compile(r"([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d")
_ROUTE_CONTRACT = re.compile(r"route\.v([0-9]{1,4})")


class DatabaseSection(Section):
    name: DatabaseName | None = None
    # `schema` itself is a method of every pydantic model.
    schema_name: SchemaName | None = Field(default=None, alias="schema")

    @model_validator(mode="after")
    def _shared_needs_schema(self) -> Self:
        if self.name == SHARED_DATABASE and self.schema_name is None:
            raise refuse(
                f"{SHARED_DATABASE!r} is the database butlers share, and this one has no schema",
                at=("name",),
                hint="add `schema = ...`, or leave `name` out for a database of its own",
            )
        return self


class ScheduleConfig(Section):
    name: Text
    cron: Text
    dispatch_mode: Literal["prompt", "job"] = "prompt"
    prompt: Text | None = None
    job_name: Text | None = None
    job_args: FrozenTable = FrozenDict()
    timezone: Timezone | None = None  # None: the butler's
    check: Text | None = None
    missed: Literal["skip", "once", "ask"] = "skip"
    missed_within_s: Seconds | None = None

    @model_validator(mode="after")
    def _fits_dispatch_mode(self) -> Self:
        if self.dispatch_mode == "prompt":
            self._needs("prompt", without=("job_name", "job_args"))
        else:
            self._needs("job_name", without=("prompt",))
        return self

    def _needs(self, key: str, *, without: tuple[str, ...]) -> None:
        mode = self.dispatch_mode
        hint = 'a prompt wakes a model; a job (dispatch_mode = "job") runs Python without one'
        if getattr(self, key) is None:
            raise refuse(f"{key} is required with dispatch_mode {mode!r}", at=(key,), hint=hint)
        for other in without:
            if other in self.model_fields_set:
                raise refuse(f"is not used with dispatch_mode {mode!r}", at=(other,), hint=hint)


class RuntimeSection(Section):
    model: Text | None = None
    max_concurrent_sessions: Count = 1
    max_queued: Annotated[Integer, Field(ge=0)] = 100
    timeout_s: Seconds = 300
    args: tuple[str, ...] = ()
    access: Access = "workspace"
    schedule_access: Access = "sealed"
    routed_access: Access = "sealed"
    warm: Annotated[Integer, Field(ge=0)] = 0  # CLIs that wait, booted, for a routed message


class RuntimeTypeSection(Section):
    type: RuntimeType = "auto"


class RuntimeConfig(RuntimeSection, RuntimeTypeSection):
    """[runtime] and [butler.runtime], which a reader has no reason to keep apart."""


def _contract_number(value: object) -> object:
    found = _ROUTE_CONTRACT.fullmatch(value) if isinstance(value, str) else None
    return int(found[1]) if found else value


RouteContract = Annotated[Count, BeforeValidator(_contract_number)]


class SwitchboardConfig(Section):
    """Where the Switchboard is, and how this butler stands in its registry."""

    url: ShiftedUrl = Field(default=_SWITCHBOARD_URL, validate_default=True)
    advertise: bool = True
    liveness_ttl_s: Seconds = 300
    route_contract_min: RouteContract = 1
    route_contract_max: RouteContract = 1
    # RE2 patterns; a message that contains one is for this butler.
    triggers: tuple[Text, ...] = ()

    @model_validator(mode="after")
    def _min_below_max(self) -> Self:
        if self.route_contract_min > self.route_contract_max:
            raise refuse("is above route_contract_max", at=("route_contract_min",))
        return self


class BufferConfig(Section):
    queue_capacity: Count = 100
    worker_count: Count = 4
    scanner_interval_s: Seconds = 30
    scanner_grace_s: Seconds = 10
    scanner_batch_size: Count = 50
    max_consecutive_same_tier: Count = 10


class TriageConfig(Section):
    """What the Switchboard looks at when it decides where a message goes."""

    history_minutes: Annotated[Integer, Field(ge=0)] = 15  # of the conversation travel along
    history_messages: Annotated[Integer, Field(ge=0, le=200)] = 30  # and at most so many
    affinity_days: Annotated[Integer, Field(ge=0)] = 30  # a mail thread stays where it was
    # A source that gives its messages no ids: the same words again within this are a repeat.
    dedupe_window_s: Seconds = 300


def _quiet_hours(value: str) -> str:
    start, _, end = value.partition("-")
    if not _QUIET_HOURS.fullmatch(value) or start == end:
        raise refuse(f"{value!r} is not a span of hours", hint='write it as "22:00-07:00"')
    return value


class DeliveryConfig(Section):
    """Limits of the Messenger."""

    reply_ttl_s: Seconds = 6 * 3600  # of reactions too
    send_ttl_s: Seconds = 24 * 3600
    per_minute: Count = 60  # over one line to the outside
    per_recipient_per_minute: Count = 10
    quiet_hours: Annotated[str, AfterValidator(_quiet_hours)] | None = None  # in the butler's zone


class EnvConfig(Section):
    required: tuple[VariableName, ...] = ()
    optional: tuple[VariableName, ...] = ()


class ShutdownConfig(Section):
    timeout_s: Seconds = 30


class BudgetConfig(Section):
    """What this butler may spend in a day; None is no limit."""

    daily_usd: Annotated[Decimal, Field(ge=0)] | None = None
    daily_tokens: Annotated[Integer, Field(ge=0)] | None = None
    # What becomes of a message when it is used up: it waits until tomorrow, or is refused at once.
    at_limit: Literal["wait", "refuse"] = "wait"


class SkillsConfig(Section):
    packs: tuple[Text, ...] = ()
    disclosure: Literal["full", "summary"] = "full"
    allow_soul_edit: bool = False
    reflexes: bool = True


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class LoggingConfig(Section):
    level: Annotated[
        Literal["debug", "info", "warning", "error", "critical"], BeforeValidator(_lower)
    ] = "info"


FEWEST_DAYS = 7  # what waits, waits for days; and a repeat that comes late is still known


def _usable_path(value: Path) -> Path:
    if "\0" in str(value):
        raise refuse("is not a path")
    if str(value).startswith("~"):
        raise refuse("'~' is not resolved here", hint="write ${HOME} instead of ~")
    return value


def _keepable(days: int) -> int:
    if 0 < days < FEWEST_DAYS:
        raise refuse(f"is less than {FEWEST_DAYS}", hint="0 keeps everything for ever")
    return days


class StorageConfig(Section):
    """A relative blob_dir lies in BUTLERS_HOME; a loaded config has it absolute."""

    blob_dir: Annotated[Path, AfterValidator(_usable_path)] = Path("data/blobs")
    # How long what is over is kept: messages, deliveries and their files; 0: for ever. Longer than the
    # Switchboard is ever off: what it asks again after that is done again.
    keep_days: Annotated[Integer, Field(ge=0, le=36_500), AfterValidator(_keepable)] = 0


class SchedulerConfig(Section):
    tick_interval_s: Seconds = 60
    heartbeat_interval_s: Seconds = 120


def _distinct_names(schedules: tuple[ScheduleConfig, ...]) -> tuple[ScheduleConfig, ...]:
    seen: set[str] = set()
    for index, schedule in enumerate(schedules):
        if schedule.name in seen:
            raise refuse(f"there are two schedules named {schedule.name!r}", at=(index, "name"))
        seen.add(schedule.name)
    return schedules


class ButlerSection(Section):
    name: ButlerName
    port: ShiftedPort
    description: str = ""
    timezone: Timezone | None = None  # None: the fleet's
    strict_modules: bool = False
    db: DatabaseSection = DatabaseSection()
    schedule: Annotated[tuple[ScheduleConfig, ...], AfterValidator(_distinct_names)] = ()
    runtime: RuntimeSection = RuntimeSection()
    switchboard: SwitchboardConfig | None = None
    env: EnvConfig = EnvConfig()
    shutdown: ShutdownConfig = ShutdownConfig()
    shutdown_timeout_s: Seconds | None = None
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
                "is given a second time as butler.shutdown.timeout_s",
                at=("shutdown_timeout_s",),
                hint="keep one of the two",
            )
        return self


class ButlerFile(Section):
    """The whole file, in the shape in which it is written."""

    butler: ButlerSection
    runtime: RuntimeTypeSection = RuntimeTypeSection()
    buffer: BufferConfig = BufferConfig()
    triage: TriageConfig = TriageConfig()
    delivery: DeliveryConfig = DeliveryConfig()
    skills: SkillsConfig = SkillsConfig()
    # Each module and each channel validates its own table.
    modules: FreeTables = FrozenDict()
    channels: FreeTables = FrozenDict()  # outbound, of the Messenger
    connectors: FreeTables = FrozenDict()  # inbound, of the Switchboard

    @model_validator(mode="before")
    @classmethod
    def _always_a_butler(cls, data: dict[str, Any]) -> dict[str, Any]:
        # So that a file without [butler] is told which keys it lacks, not just which table.
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
