"""The phases of a butler's start, in order. Each makes one thing and registers its end on the stack.

Ends run in reverse: outsiders are refused first, then running sessions are drained while their own butler
still answers them, then the server closes, and the pool last of all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from butlers.channels.console import ConsoleChannel
from butlers.config.butler import Role
from butlers.daemon import mcp_server
from butlers.daemon.auth import ButlerTokens
from butlers.daemon.calls import CallPipeline
from butlers.daemon.endpoint import Endpoint, url_of
from butlers.daemon.ports import bind_port
from butlers.daemon.runtime import choose_runtime
from butlers.daemon.transport import DualTransport
from butlers.domain.delivery import DeliveryRequest
from butlers.domain.registration import Registration
from butlers.ingest.accept import INBOX
from butlers.ingest.triage import decide
from butlers.modules.registry import load_modules as find_modules
from butlers.routing.deliver import DELIVERIES, Counter
from butlers.routing.dispatch import Dispatch
from butlers.routing.notify import NOTIFY, Outbox
from butlers.routing.peers import Peers
from butlers.routing.registration import Registrar
from butlers.routing.routes import ROUTES, RouteInbox
from butlers.sessions.guard import SessionGuard
from butlers.sessions.spawner import Spawner
from butlers.skills.reflexes import load_reflexes
from butlers.store import migrations
from butlers.store.database import Database
from butlers.store.deliveries import post_mail
from butlers.store.listener import Listener
from butlers.store.provision import Place
from butlers.store.worker import Handler, QueueWorker
from butlers.tools.catalogue import core_tools
from butlers.tools.context import Services
from butlers.wire.directory import announce

if TYPE_CHECKING:
    from butlers.daemon.butler import Butler

log = structlog.get_logger()

Phase = Callable[["Butler"], Awaitable[None]]


async def bind_the_port(butler: Butler) -> None:
    log.info("config loaded", port=butler.config.port, file=str(butler.config.file))
    butler.port = bind_port(butler.config.port)
    butler.url = url_of(butler.port)
    butler.stack.callback(butler.port.close)


async def load_modules(butler: Butler) -> None:
    butler.modules = find_modules(butler.config)


async def load_reflex_book(butler: Butler) -> None:
    butler.reflexes = load_reflexes(butler.config.directory / "skills")
    for found in butler.reflexes.diagnostics:
        log.warning("skill disabled", **found.as_dict())


async def provision_database(butler: Butler) -> None:
    await butler.provisioner.provision(_place(butler))


async def open_pool(butler: Butler) -> None:
    login = butler.provisioner.login(_place(butler))
    butler.database = await Database.open(login, f"butlers:{butler.config.name}")
    log.info("database connected", database=login.database, schema=login.schema)

    async def close() -> None:
        await butler.database.close()
        log.info("database pool closed")

    butler.stack.push_async_callback(close)


async def apply_core_migrations(butler: Butler) -> None:
    await _migrate(butler, migrations.CORE)


async def apply_butler_migrations(butler: Butler) -> None:
    await _migrate(butler, butler.config.name.replace("-", "_"))


async def open_listener(butler: Butler) -> None:
    listener = Listener(
        butler.database.login,
        f"butlers:{butler.config.name}:listener",
        recover_every_s=butler.config.buffer.scanner_interval_s,
    )
    butler.listener = listener
    butler.background(listener.run(await listener.open()), "listener")


async def create_spawner(butler: Butler) -> None:
    config, zone = butler.config, ZoneInfo(butler.config.timezone)
    runtime = choose_runtime(
        config, lambda text: butler.reflexes.match(text, butler.clock.now(), zone)
    )
    butler.guard = SessionGuard(config.name)
    butler.spawner = Spawner(
        config.name,
        butler.url,
        runtime,
        butler.guard,
        butler.database,
        max_concurrent=config.runtime.max_concurrent_sessions,
        max_queued=config.runtime.max_queued,
        timeout_s=config.runtime.timeout_s,
    )


async def register_tools(butler: Butler) -> None:
    tokens = ButlerTokens(butler.config.name, butler.key, butler.guard)
    declared = [("the core", spec) for spec in core_tools(butler.config.role)]
    for module in butler.modules:
        declared += [(f"module {module.name}", spec) for spec in module.tool_specs()]
    named = mcp_server.name_tools(declared)
    services = Services(
        butler.config,
        butler.database,
        butler.clock,
        butler.listener,
        butler.spawner,
        butler.status,
    )
    butler.mcp = mcp_server.build_server(butler.config.name, butler.config.description, tokens)
    mcp_server.register(butler.mcp, named)
    butler.mcp.add_middleware(CallPipeline(services, tokens, named, butler.in_flight))


async def start_server(butler: Butler) -> None:
    async def health(_request: Request) -> Response:
        return JSONResponse(await butler.status())

    butler.mcp.custom_route("/health", methods=["GET"])(health)
    endpoint = Endpoint(DualTransport(butler.mcp), butler.port, butler.in_flight)
    await endpoint.start()
    log.info("server started", port=butler.port.getsockname()[1])
    butler.stack.callback(announce(butler.home, butler.config.name, butler.url).unlink, True)
    butler.stack.push_async_callback(endpoint.stop, butler.config.shutdown.timeout_s)


async def connect_peers(butler: Butler) -> None:
    butler.peers = Peers(butler.config.name, butler.key)
    butler.stack.push_async_callback(butler.peers.close)


async def start_workers(butler: Butler) -> None:
    for queue_name, handler, concurrency in _work_of(butler):
        worker = QueueWorker(
            butler.database, butler.listener, queue_name, handler, concurrency=concurrency
        )
        worker.start()
        butler.stack.push_async_callback(worker.stop, butler.config.shutdown.timeout_s)


async def join_the_switchboard(butler: Butler) -> None:
    config = butler.config.switchboard
    if config is None or not config.advertise:
        return
    butler.registrar = Registrar(butler.peers, config.url, lambda: _registration(butler))
    butler.background(butler.registrar.run(), "registrar")


async def accept_calls_until_stopped(butler: Butler) -> None:
    # Last on the stack, so first at the end: outsiders are refused before anything is drained.
    butler.stack.callback(butler.in_flight.refuse_outsiders)


PHASES: tuple[Phase, ...] = (
    bind_the_port,
    load_modules,
    load_reflex_book,
    provision_database,
    open_pool,
    apply_core_migrations,
    apply_butler_migrations,
    open_listener,
    create_spawner,
    register_tools,
    start_server,
    connect_peers,
    start_workers,
    join_the_switchboard,
    accept_calls_until_stopped,
)


def _place(butler: Butler) -> Place:
    config = butler.config
    return Place(config.name, config.db.name, config.db.schema)


async def _migrate(butler: Butler, name: str) -> None:
    chain = migrations.find_chain(name, butler.versions)
    if chain is not None:
        await migrations.migrate(butler.database.login, [chain])


def _registration(butler: Butler) -> Registration:
    config = butler.config
    assert config.switchboard is not None
    return Registration(
        name=config.name,
        url=butler.url,
        description=config.description,
        infrastructure=config.role is not Role.DOMAIN,
        triggers=butler.reflexes.patterns if config.skills.reflexes else (),
        contract_min=config.switchboard.route_contract_min,
        contract_max=config.switchboard.route_contract_max,
        liveness_ttl_s=config.switchboard.liveness_ttl_s,
    )


def _work_of(butler: Butler) -> list[tuple[str, Handler, int]]:
    """The queues a butler works on, by its role."""
    config, database = butler.config, butler.database
    workers = config.buffer.worker_count
    routes = RouteInbox(config.name, database, butler.spawner)
    work: list[tuple[str, Handler, int]] = [
        (ROUTES, routes.process, config.runtime.max_concurrent_sessions)
    ]
    if config.switchboard is not None:
        outbox = Outbox(butler.peers, config.switchboard.url)
        work.append((NOTIFY, outbox.hand_over, workers))
    if config.role is Role.SWITCHBOARD:
        dispatch = Dispatch(database, butler.peers, butler.clock, decide)
        work.append((INBOX, dispatch.route_message, workers))
        work.append((DELIVERIES, dispatch.forward_delivery, workers))
    if config.role is Role.MESSENGER:
        work.append((DELIVERIES, _counter(butler).send, workers))
    return work


def _counter(butler: Butler) -> Counter:
    async def post(delivery: DeliveryRequest) -> int:
        async with butler.database.transaction() as connection:
            return await post_mail(connection, delivery)

    console = ConsoleChannel(post, butler.clock)
    return Counter(butler.database, {console.name: console})
