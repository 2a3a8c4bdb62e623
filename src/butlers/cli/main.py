"""The ``butlers`` command. Data goes to stdout, everything else to stderr, every error with a hint."""

from __future__ import annotations

import sys

import typer

from butlers.cli import (
    config,
    costs,
    database,
    messages,
    messenger,
    scaffold,
    secrets,
    serve,
    sessions,
    skills,
    status,
    switchboard,
)
from butlers.cli.output import print_message
from butlers.domain.errors import ButlersError
from butlers.domain.redaction import redactor
from butlers.domain.terminal import escape_line

app = typer.Typer(
    name="butlers",
    help="A self-hosted personal assistant made of long-lived daemons.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(serve.up)
app.command()(serve.run)
app.command()(scaffold.init)
app.command(name="list")(status.list_butlers)
app.command()(status.status)
app.command()(messages.send)
app.command()(messages.mail)
app.command()(sessions.tool)
app.command()(sessions.trigger)
app.command()(messages.trace)
app.command(name="stop-all")(sessions.stop_all)
app.command()(costs.costs)
app.command()(status.doctor)
app.command()(switchboard.connectors)
app.command()(messages.triage)
app.add_typer(switchboard.rules_app, name="rules")
app.add_typer(switchboard.contacts_app, name="contacts")
app.add_typer(switchboard.registry_app, name="registry")
app.add_typer(sessions.app, name="sessions")
app.add_typer(messages.dead_app, name="dead")
app.add_typer(messenger.deliveries_app, name="deliveries")
app.add_typer(messenger.approvals_app, name="approvals")
app.add_typer(scaffold.module_app, name="module")
app.add_typer(config.app, name="config")
app.add_typer(database.app, name="db")
app.add_typer(secrets.app, name="secrets")
app.add_typer(skills.app, name="skills")


def main() -> int:
    """Run the command line and return its exit code."""
    try:
        code = app(standalone_mode=False)
    except ButlersError as error:
        return _print_error(error)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:
        if (show := getattr(error, "show", None)) is not None:  # a usage error of click
            if isinstance(said := getattr(error, "message", None), str):
                error.message = escape_line(said)  # type: ignore[attr-defined]
            show()
            print_message("hint", "add --help to see the arguments and options")
            return int(getattr(error, "exit_code", 2))
        raise
    return code if isinstance(code, int) else 0


def _print_error(error: ButlersError) -> int:
    print_message("error", redactor.scrub(error.message))
    if error.hint:
        print_message("hint", redactor.scrub(error.hint))
    return 1


if __name__ == "__main__":
    sys.exit(main())
