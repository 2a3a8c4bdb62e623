"""The phases of a butler's start, in order. Each creates one thing and registers its cleanup on the stack.

Cleanup runs in reverse: calls from outside are rejected first, then running sessions are drained while
their own butler still answers them, then the server closes, then the modules stop, and the pool last.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import structlog

from butlers.config.prices import load_prices
from butlers.daemon import mcp_server
from butlers.daemon.endpoint import Endpoint
from butlers.daemon.health import HealthMonitor
from butlers.daemon.registration import Registrar
from butlers.daemon.retention import Retention
from butlers.daemon.roles import core_workers, roles_of, start_workers
from butlers.daemon.runtime_choice import (
    choose_runtime,
    has_sessions,
    require_credential,
    runtime_warnings,
    with_small_model,
)
from butlers.daemon.skill_resources import serve_skills
from butlers.daemon.skills import open_skills, with_skill_tools
from butlers.daemon.transport import DualTransport
from butlers.db import migrations
from butlers.db.database import Database
from butlers.db.migrations import Chain
from butlers.db.provision import ButlerSchema
from butlers.domain.caller import CallerKind
from butlers.domain.errors import ConfigInvalid
from butlers.domain.session import SessionRequest
from butlers.modules.lifecycle import ModuleSet
from butlers.queue.dead_letters import DeadLetterNotices
from butlers.queue.listener import Listener
from butlers.runtimes.reflex import ReflexRuntime
from butlers.secrets.credentials import CredentialStore
from butlers.secrets.master_key import MasterKey
from butlers.sessions.broker_access import BrokerAccess
from butlers.sessions.budget import Budget
from butlers.sessions.concurrency import FleetSlots
from butlers.sessions.guard import LiveSession, SessionGuard
from butlers.sessions.notes import Notes
from butlers.sessions.pool import ButlerPool, warm_slots
from butlers.sessions.recovery import SessionRecovery
from butlers.sessions.session_log import SessionLog
from butlers.sessions.spawner import Spawner, SpawnerDeps
from butlers.sessions.workspace import SessionEnvironment, Workspaces
from butlers.skills.reflexes import OwnerReflexes, load_reflexes
from butlers.skills.registry.built_in import MAIL_TOOLS
from butlers.tools.callers import ButlerTokens
from butlers.tools.calls import CallPipeline
from butlers.tools.catalogue import core_tools
from butlers.tools.declaration import SHARED_PREFIX
from butlers.tools.gate import CallGate
from butlers.tools.role import RoleParts
from butlers.tools.state import StateStore
from butlers.wire import telemetry
from butlers.wire.client import Peers
from butlers.wire.directory import announce

if TYPE_CHECKING:
    from butlers.daemon.butler import Butler

log = structlog.get_logger()

Phase = Callable[["Butler"], Awaitable[None]]


async def open_the_port(butler: Butler) -> None:
    log.info("config loaded", port=butler.config.port, file=str(butler.config.file))
    butler.endpoint = Endpoint(butler.config.port, butler.status, butler.in_flight, butler.identity)
    await butler.endpoint.open()


async def initialize_telemetry(_butler: Butler) -> None:
    # The process's entry point starts the exporter; this phase only logs its state.
    log.info("telemetry", collecting=telemetry.is_on())


async def load_modules(butler: Butler) -> None:
    butler.modules = ModuleSet.load(butler.config)


async def validate_config(butler: Butler) -> None:
    for role in roles_of(butler.config):
        role.validate_config(butler.config, butler.home)
    await butler.modules.validate_config()


async def validate_environment(butler: Butler) -> None:
    missing = [name for name in butler.config.env.required if not butler.settings.environ.get(name)]
    if missing:
        raise ConfigInvalid(
            f"environment variables that {butler.config.name} needs are not set:"
            f" {', '.join(missing)}",
            path=butler.config.file,
            key="butler.env.required",
            hint="set them where the butler is started",
        )


async def load_reflex_book(butler: Butler) -> None:
    butler.reflexes = load_reflexes(butler.config.directory / "skills", compare=False)
    for found in butler.reflexes.diagnostics:
        log.warning("skill disabled", **found.as_dict())


async def provision_database(butler: Butler) -> None:
    await butler.provisioner.provision(_place(butler))


async def open_pool(butler: Butler) -> None:
    login = butler.provisioner.login(_place(butler))
    butler.database = await Database.open(
        login, f"butlers:{butler.config.name}", size=butler.provisioner.pool_size
    )
    butler.state_store = StateStore(butler.database)
    butler.session_log = SessionLog(butler.database)
    log.info("database connected", database=login.database, schema=login.schema)

    async def close() -> None:
        await butler.database.close()
        log.info("database pool closed")

    butler.stack.push_async_callback(close)


async def apply_core_migrations(butler: Butler) -> None:
    await _migrate(butler, migrations.find_chain(migrations.CORE, butler.versions))


async def apply_butler_migrations(butler: Butler) -> None:
    own = butler.config.name.replace("-", "_")
    await _migrate(butler, migrations.find_chain(own, butler.versions))


async def apply_module_migrations(butler: Butler) -> None:
    # From here on a module may need its cleanup, even if a later phase fails.
    butler.stack.push_async_callback(butler.modules.stop)
    await butler.modules.migrate(lambda chain: _migrate(butler, chain), butler.versions)


async def set_up_credentials(butler: Butler) -> None:
    butler.credentials = CredentialStore(
        butler.database,
        MasterKey.load(butler.settings),
        butler=butler.config.name,
        environ=butler.settings.environ,
    )
    await butler.modules.check_credentials(butler.credentials)


async def validate_core_credentials(butler: Butler) -> None:
    """Fail if the configured runtime has no credential."""
    await require_credential(butler.config.runtime.type, butler.credentials)


async def start_modules(butler: Butler) -> None:
    await butler.modules.start(butler.database, butler.credentials)


async def load_skills(butler: Butler) -> None:
    """Open the skills. A pack that fails is shown in the log and in ``status``."""
    butler.skills = await open_skills(butler)


async def open_listener(butler: Butler) -> None:
    listener = Listener(
        butler.database.login,
        f"butlers:{butler.config.name}:listener",
        recover_every_s=butler.config.buffer.scanner_interval_s,
        grace_s=butler.config.buffer.scanner_grace_s,
    )
    butler.listener = listener
    butler.database.on_commit = listener.wake
    butler.background(listener.run(await listener.open()), "listener")


async def create_spawner(butler: Butler) -> None:
    model = await choose_runtime(butler.config, butler.settings, butler.credentials)
    config = await with_small_model(butler.config, model, butler.credentials)
    zone = ZoneInfo(config.timezone)
    workspaces = Workspaces(butler.home, config.name, config.directory)
    workspaces.take()
    butler.stack.callback(workspaces.release)
    ledger = butler.broker.ledger if butler.broker else None
    await butler.session_log.close_crashed(ledger)
    butler.guard = SessionGuard(config.name, MAIL_TOOLS, config.runtime.max_tool_calls)
    prices = load_prices(butler.settings)
    butler.runtime_warnings = runtime_warnings(config, model, prices)
    budget = Budget(config.budget, prices, zone, butler.fleet_budget, config.name, ledger)
    access = (
        None
        if butler.broker is None
        else BrokerAccess(butler.broker, config, butler.credentials, budget.days())
    )
    environment = SessionEnvironment(
        config, butler.credentials, butler.settings.environ, _credentials_of(butler), access
    )
    slots = FleetSlots(butler.home, butler.max_sessions)
    butler.warm = ButlerPool(
        config,
        butler.url,
        butler.guard,
        workspaces,
        environment,
        warm_slots(butler.home, butler.max_sessions),
        butler.shared_pool,
        access,
    )
    deps = SpawnerDeps(
        config=config,
        url=butler.url,
        database=butler.database,
        log=butler.session_log,
        clock=butler.clock,
        guard=butler.guard,
        workspaces=workspaces,
        environment=environment,
        budget=budget,
        slots=slots,
        warm=butler.warm,
        skills=butler.skills,
        notes=Notes(butler.home, config.name, butler.tell_owner, butler.ask_owner),
        context=butler.modules.session_context,
        offered_bytes=partial(_offered_bytes, butler),
        call=partial(_call_in_process, butler),
        broker=access,
    )
    reflexes = OwnerReflexes(butler.reflexes, butler.clock, zone, config.skills.reflexes)
    butler.spawner = Spawner(deps, ReflexRuntime(reflexes.match), model)
    butler.recovery = SessionRecovery(
        config.name, butler.database, butler.clock, config.budget.at_limit == "wait"
    )
    butler.stack.push_async_callback(butler.spawner.settle)
    log.info("runtime chosen", runtime=butler.spawner.runtime.name)


async def wire_pipeline(butler: Butler) -> None:
    butler.peers = Peers(butler.config.name, butler.key)
    butler.stack.push_async_callback(butler.peers.close)
    jobs = dict(_jobs_of(butler))
    butler.tokens = ButlerTokens(butler.identity, butler.guard)
    butler.parts = parts = RoleParts(
        config=butler.config,
        home=butler.home,
        database=butler.database,
        listener=butler.listener,
        clock=butler.clock,
        spawner=butler.spawner,
        recovery=butler.recovery,
        peers=butler.peers,
        credentials=butler.credentials,
        tokens=butler.tokens,
        in_flight=butler.in_flight,
        status=butler.status,
        jobs=jobs,
    )
    butler.roles = tuple(role() for role in roles_of(butler.config))
    for role in butler.roles:
        await role.open(parts)
        jobs.update(role.jobs())
        parts.earlier.append(role)


async def sync_schedules(butler: Butler) -> None:
    for role in butler.roles:
        await role.sync()


async def connect_switchboard(butler: Butler) -> None:
    config = butler.config.switchboard
    if config is not None and config.advertise:
        butler.registrar = Registrar(butler, config.url)


async def register_tools(butler: Butler) -> None:
    core = core_tools(*butler.roles)
    declared = [("the core", spec) for spec in core]
    # A channel's tools may come from its role and from a module that the configuration names.
    of_modules = await butler.modules.collect_tools(butler.database)
    declared += [(owner, spec) for owner, spec in of_modules if spec not in core]
    named = mcp_server.name_tools(with_skill_tools(butler, declared))
    butler.mcp = mcp_server.build_server(
        butler.config.name, butler.config.description, butler.tokens
    )
    tools = mcp_server.build_tools(named)
    sizes = mcp_server.register(butler.mcp, tools)
    butler.tool_bytes = {
        name: size
        for name, size in sizes.items()
        if CallerKind.SESSION in named[name].callers
        and name not in MAIL_TOOLS
        and not name.startswith(SHARED_PREFIX)
    }
    butler.pipeline = CallPipeline(butler.services, butler.tokens, named, tools, butler.in_flight)
    butler.mcp.add_middleware(butler.pipeline)
    serve_skills(butler.mcp, butler.skills.skill_set, butler.tokens, butler.in_flight)
    for route in (route for role in butler.roles for route in role.routes()):
        butler.mcp.custom_route(route.path, methods=list(route.methods))(route.endpoint)


async def start_server(butler: Butler) -> None:
    await butler.endpoint.serve(DualTransport(butler.mcp))
    butler.stack.push_async_callback(butler.endpoint.drain)
    butler.stack.push_async_callback(_wait_for_calls, butler)
    log.info("server started", port=butler.endpoint.port)
    config = butler.config
    entry = announce(
        butler.home,
        config.name,
        butler.url,
        description=config.description,
        directory=config.directory,
    )
    butler.stack.callback(entry.unlink, True)


async def apply_approval_gates(butler: Butler) -> None:
    # Gates belong to the call pipeline, which exists before the port accepts calls, so that a gated tool
    # is never callable without its gate. This phase only logs them.
    gate = butler.services.find(CallGate)
    log.info("approval gates in place", gated=sorted(gate.gated) if gate else [])


async def start_buffer(butler: Butler) -> None:
    for role in butler.roles:
        start_workers(butler, role.workers())
    for module in butler.modules.active:
        start_workers(butler, module.workers(butler.parts))


async def recover_route_inbox(butler: Butler) -> None:
    start_workers(butler, core_workers(butler))
    if butler.spawner.model is not None:
        await butler.recovery.ask_about_kept()
    notices = DeadLetterNotices(butler.config.name, butler.database, butler.listener)
    butler.background(notices.run(), "dead letter notices")
    retention = Retention(butler.config, butler.database, butler.clock, butler.roles)
    butler.background(retention.run(), "retention")


async def start_heartbeat(butler: Butler) -> None:
    butler.background(HealthMonitor(butler).run(), "heartbeat")


async def start_scheduler(butler: Butler) -> None:
    """Start the loops of the roles; the scheduler is one of them."""
    for role in butler.roles:
        for name, loop in role.loops().items():
            butler.background(loop(), name)


async def watch_skills(butler: Butler) -> None:
    butler.background(butler.skills.maker.run(), "skills")


async def start_liveness_reporter(butler: Butler) -> None:
    if butler.registrar is not None:
        butler.background(butler.registrar.run(), "registrar")


async def accept_calls_until_stopped(butler: Butler) -> None:
    if butler.spawner.model is not None and has_sessions(butler.config):
        await butler.warm.want(butler.spawner.model)
        if butler.config.runtime.warm:
            butler.background(butler.warm.own.run(), "warm")
    # Last on the stack, so first at shutdown: reject calls from outside before anything is drained.
    butler.stack.callback(butler.in_flight.reject_external_calls)


PHASES: tuple[Phase, ...] = (
    open_the_port,
    initialize_telemetry,
    load_modules,
    validate_config,
    validate_environment,
    load_reflex_book,
    provision_database,
    open_pool,
    apply_core_migrations,
    apply_butler_migrations,
    apply_module_migrations,
    set_up_credentials,
    validate_core_credentials,
    start_modules,
    load_skills,
    open_listener,
    create_spawner,
    wire_pipeline,
    sync_schedules,
    connect_switchboard,
    register_tools,
    start_server,
    apply_approval_gates,
    start_buffer,
    recover_route_inbox,
    start_heartbeat,
    start_scheduler,
    watch_skills,
    start_liveness_reporter,
    accept_calls_until_stopped,
)


def _place(butler: Butler) -> ButlerSchema:
    config = butler.config
    return ButlerSchema(config.name, config.db.name, config.db.schema)


async def _migrate(butler: Butler, chain: Chain | None) -> None:
    if chain is not None:
        await migrations.migrate(butler.database.login, [chain])


def _jobs_of(butler: Butler) -> dict[str, Callable[..., Awaitable[Any]]]:
    """Return the jobs that active modules declare, by function name."""
    return {job.__name__: job for module in butler.modules.active for job in module.jobs}


def _credentials_of(butler: Butler) -> list[tuple[str, str]]:
    """Return the credentials that active modules declare: environment variable and name in the store."""
    return [
        (need.env or need.name, need.name)
        for module in butler.modules.active
        for need in module.credentials()
    ]


def _offered_bytes(butler: Butler, session: SessionRequest) -> int:
    """Return the size of the tool list that a session's model receives."""
    return sum(
        size
        for name, size in butler.tool_bytes.items()
        if (session.tools is None or name in session.tools) and butler.modules.is_enabled(name)
    )


async def _call_in_process(
    butler: Butler, session: LiveSession, tool: str, arguments: dict[str, Any]
) -> Any:
    return await butler.pipeline.call_in_process(session, tool, arguments)


async def _wait_for_calls(butler: Butler) -> None:
    """Let running calls end, with the sessions they wait for; calls from outside may not begin."""
    butler.in_flight.reject_external_calls()
    if not await butler.in_flight.wait_idle(butler.grace_s):
        log.warning(
            "calls and sessions did not end in time",
            calls=butler.in_flight.count,
            sessions=butler.guard.count,
        )
