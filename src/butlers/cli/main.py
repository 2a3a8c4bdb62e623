"""The ``butlers`` command. Data goes to stdout, everything else to stderr, every error with a hint."""

from __future__ import annotations

import sys

import typer

from butlers.cli import (
    approvals,
    connectors,
    contacts,
    database,
    dead,
    deliveries,
    doctor,
    init,
    inspect,
    module,
    registry,
    rules,
    secrets,
    send,
    serve,
    sessions,
    skills,
    tools,
    trace,
    triage,
)
from butlers.domain.errors import ButlersError
from butlers.domain.redaction import redactor

app = typer.Typer(
    name="butlers",
    help="A self-hosted personal assistant made of long-lived daemons.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(serve.up)
app.command()(serve.run)
app.command()(init.init)
app.command(name="list")(inspect.list_butlers)
app.command()(inspect.status)
app.command()(send.send)
app.command()(send.mail)
app.command()(tools.tool)
app.command()(tools.trigger)
app.command()(trace.trace)
app.command(name="stop-all")(sessions.stop_all)
app.command()(doctor.doctor)
app.command()(connectors.connectors)
app.command()(triage.triage)
app.add_typer(rules.app, name="rules")
app.add_typer(contacts.app, name="contacts")
app.add_typer(registry.app, name="registry")
app.add_typer(sessions.app, name="sessions")
app.add_typer(dead.app, name="dead")
app.add_typer(deliveries.app, name="deliveries")
app.add_typer(approvals.app, name="approvals")
app.add_typer(module.app, name="module")
app.add_typer(database.app, name="db")
app.add_typer(secrets.app, name="secrets")
app.add_typer(skills.app, name="skills")


def main() -> int:
    try:
        code = app(standalone_mode=False)
    except ButlersError as error:
        return fail(error)
    except KeyboardInterrupt:
        return 130
    except typer.Abort:
        return 130
    except Exception as error:
        if (show := getattr(error, "show", None)) is not None:  # click's own usage errors
            show()
            typer.echo("hint: add --help to see what a command takes", err=True)
            return int(getattr(error, "exit_code", 2))
        raise
    return code if isinstance(code, int) else 0


def fail(error: ButlersError) -> int:
    typer.echo(redactor.scrub(f"error: {error.message}"), err=True)
    if error.hint:
        typer.echo(redactor.scrub(f"hint: {error.hint}"), err=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
