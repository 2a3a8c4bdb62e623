"""The ``butlers`` command. Data goes to stdout, everything else to stderr, every error with a hint."""

from __future__ import annotations

import sys

import typer

from butlers.cli.lazy import LazyCommand, lazy_group
from butlers.cli.output import print_message
from butlers.domain.errors import ButlersError
from butlers.domain.redaction import redactor
from butlers.domain.terminal import escape_line

# The summaries are the first lines of the commands' own help; a test compares.
COMMANDS = {
    "up": LazyCommand("serve:up", "Start the whole fleet in this terminal. Ctrl-C stops it."),
    "run": LazyCommand("serve:run", "Start one butler in its own process."),
    "demo": LazyCommand(
        "demo:demo",
        "Start a fleet with an invented life of six months, to try things out. Ctrl-C ends it.",
    ),
    "init": LazyCommand("scaffold:init", "Create the folder of a new butler."),
    "list": LazyCommand(
        "status:list_butlers", "List the butlers of this home: name, port, state and purpose."
    ),
    "status": LazyCommand(
        "status:status", "Show the health of each butler. Exits with 1 unless all are healthy."
    ),
    "send": LazyCommand("messages:send", "Send a message to your butlers."),
    "chat": LazyCommand(
        "chat:chat", "Talk to your butlers. Replies and reminders appear when they come."
    ),
    "mail": LazyCommand(
        "messages:mail", "Show replies, reminders and questions that no console has shown yet."
    ),
    "import": LazyCommand(
        "imports:import_file",
        "Import a file into your records. Importing it again adds only what is new.",
    ),
    "export": LazyCommand(
        "export:export", "Write all your records to files, one for each table of each butler."
    ),
    "tool": LazyCommand("sessions:tool", "Call one tool of a butler and print its result as JSON."),
    "trigger": LazyCommand(
        "sessions:trigger", "Start a session of one butler and print its answer."
    ),
    "trace": LazyCommand(
        "messages:trace",
        "Show every step of a message: when, in which butler, and with what result and cost.",
    ),
    "stop-all": LazyCommand(
        "sessions:stop_all",
        "Stop every running session of every butler at once. No model is asked.",
    ),
    "costs": LazyCommand(
        "costs:costs", "Show what the sessions of this home used: requests, tokens and dollars."
    ),
    "dashboard": LazyCommand(
        "dashboard:dashboard",
        "Open the dashboard in your browser with a link that signs you in once.",
    ),
    "doctor": LazyCommand(
        "status:doctor",
        "Check the machine, the installed LLM CLIs and the fleet. Exits with 1 if a check fails.",
    ),
    "connectors": LazyCommand("switchboard:connectors", "Show connector health."),
    "triage": LazyCommand(
        "messages:triage",
        "Explain where a message went and why, and where each triage step would send it now.",
    ),
    "tokens": LazyCommand(
        "dashboard:token_app", "Manage tokens for programs that use the dashboard's JSON API."
    ),
    "rules": LazyCommand(
        "switchboard:rules_app", "List and change your rules for incoming messages."
    ),
    "contacts": LazyCommand(
        "switchboard:contacts_app", "List contacts; allow or block senders of messages."
    ),
    "registry": LazyCommand(
        "switchboard:registry_app",
        "List or forget the butlers that are registered at the Switchboard.",
    ),
    "sessions": LazyCommand(
        "sessions:app", "List, show and stop sessions: what each was asked, did and cost."
    ),
    "dead": LazyCommand(
        "messages:dead_app", "List, replay and discard dead letters: work that failed for good."
    ),
    "deliveries": LazyCommand(
        "messenger:deliveries_app", "List outgoing messages and send one again."
    ),
    "approvals": LazyCommand("approvals:app", "Approve or reject what waits for your decision."),
    "memory": LazyCommand("memory:app", "Show, correct and forget what the butlers remember."),
    "module": LazyCommand(
        "scaffold:module_app", "Create modules, which add tools and tables to a butler."
    ),
    "connect": LazyCommand(
        "connect:connect_app", "Connect a channel, an address book or a calendar."
    ),
    "disconnect": LazyCommand(
        "connect:disconnect_app", "Disconnect a channel, an address book or a calendar."
    ),
    "roster": LazyCommand("roster:app", "Check the roster's conventions."),
    "config": LazyCommand("config:app", "Show the configuration of butlers."),
    "db": LazyCommand("database:app", "Print the address of the database, or migrate it."),
    "secrets": LazyCommand(
        "secrets:app", "Set, list, delete and import credentials, which are stored encrypted."
    ),
    "skills": LazyCommand("skills:app", "Check, register, resolve, install and run skills."),
}

app = typer.Typer(
    name="butlers",
    cls=lazy_group(COMMANDS),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def butlers() -> None:
    """A self-hosted personal assistant made of long-lived daemons."""


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
