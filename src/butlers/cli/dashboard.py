"""``butlers dashboard`` and ``butlers tokens``: open the dashboard, manage the tokens of its JSON API."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from butlers.api.sign_in import Scope, SignInStore
from butlers.cli.output import AsJson, print_line, print_rows
from butlers.config.settings import Settings
from butlers.domain.errors import NotFound, PeerUnavailable
from butlers.wire.directory import START_HINT

token_app = typer.Typer(
    help="Manage tokens for programs that use the dashboard's JSON API.", no_args_is_help=True
)

TokenName = Annotated[str, typer.Argument(help="Name of the token.")]


def dashboard(
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the browser, or print the link only.")
    ] = True,
    sign_out: Annotated[
        bool, typer.Option("--sign-out", help="End every browser session and every open link.")
    ] = False,
) -> None:
    """Open the dashboard in your browser with a link that signs you in once."""
    home = Settings.from_environ().home
    if sign_out:
        ended = SignInStore(home).sign_out_everywhere()
        print_line(f"signed out {ended} browser{'' if ended == 1 else 's'}")
        return
    link = sign_in_link(home)
    print_line(link)
    if open_browser:
        webbrowser.open(link)


@token_app.command(name="create")
def create_token(
    name: TokenName,
    scope: Annotated[
        list[Scope] | None, typer.Option(help="Allowed actions; may be given twice.")
    ] = None,
) -> None:
    """Create a token and print it. It is not shown again."""
    scopes = frozenset(scope or [Scope.READ])
    print_line(SignInStore(Settings.from_environ().home).make_token(name, scopes))


@token_app.command(name="list")
def list_tokens(as_json: AsJson = False) -> None:
    """List the tokens by name."""
    tokens = SignInStore(Settings.from_environ().home).tokens()
    print_rows(tokens, ("name", "scopes"), as_json)


@token_app.command(name="revoke")
def revoke_token(name: TokenName) -> None:
    """Revoke a token."""
    if not SignInStore(Settings.from_environ().home).revoke_token(name):
        raise NotFound(f"there is no token {name!r}", hint="`butlers tokens list` lists them")
    print_line(f"revoked {name}")


def sign_in_link(home: Path) -> str:
    """Return a new one-time link to the running dashboard of a home."""
    try:
        address = (home / "run" / "dashboard.url").read_text()
    except FileNotFoundError:
        raise PeerUnavailable("the dashboard does not run", hint=START_HINT) from None
    # After the #, so that the secret is in no request line, log or referrer.
    return f"{address}/sign-in#{SignInStore(home).make_link()}"
