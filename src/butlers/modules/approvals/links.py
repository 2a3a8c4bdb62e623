"""One-tap links: a signed address that decides one question once, within 48 hours.

Opening the link shows the question with one button, so that a chat program that previews links decides
nothing. The button sends the decision.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape
from uuid import UUID

from starlette.requests import Request
from starlette.responses import HTMLResponse

from butlers.domain.approval import ActionStatus
from butlers.domain.errors import ButlersError, NotAuthenticated
from butlers.modules.approvals import actions
from butlers.modules.approvals.actions import ActionExpired, AlreadyDecided, PendingAction
from butlers.modules.approvals.decisions import Decisions
from butlers.modules.approvals.questions import decision_text
from butlers.tools.callers import ButlerTokens

PATH = "/approvals"
PURPOSE = "approval link"
LIFETIME = timedelta(hours=48)
BY = "owner (link)"
MAX_TOKEN = 200
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex",
}
_PAGE = """<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Approval</title><p>{text}</p>{form}"""
_FORM = '<form method="post"><button>{label}</button></form>'


@dataclass(frozen=True, slots=True)
class ApprovalLinks:
    decisions: Decisions
    tokens: ButlerTokens
    base: str | None  # address under which the owner reaches the butler; None: no links are sent

    def make(self, action: PendingAction, decision: str, now: datetime) -> str:
        """Return the token of a link that decides ``yes`` or ``no`` about exactly these arguments."""
        until = int(min(now + LIFETIME, action.expires_at).timestamp())
        claims = f"{action.id.hex}.{decision}.{until}.{action.args_hash[:16]}"
        return f"{claims}.{self._mac(claims)}"

    def urls(self, action: PendingAction, now: datetime) -> tuple[str, ...]:
        if self.base is None:
            return ()
        return tuple(f"{self.base}{PATH}/{self.make(action, one, now)}" for one in ("yes", "no"))

    async def serve(self, request: Request) -> HTMLResponse:
        """Show the question, or decide it."""
        try:
            return await self._serve(request, request.path_params["token"])
        except ButlersError as error:
            status = 403 if isinstance(error, NotAuthenticated) else 409
            return _page(error.message, status=status)

    async def _serve(self, request: Request, token: str) -> HTMLResponse:
        action_id, decision, digest = self._verify(token, self.decisions.clock.now())
        async with self.decisions.database.transaction() as connection:
            action = await actions.find_action(connection, action_id)
            self._check(action, digest)
            if request.method == "GET":
                label = "Approve" if decision == "yes" else "Reject"
                return _page(action.agent_summary, _FORM.format(label=label))
            # Locked now, so that of two taps one decides.
            self._check(await actions.lock_action(connection, action_id), digest)
            if decision == "yes":
                decided = await self.decisions.approve(connection, action_id, BY)
            else:
                decided = await self.decisions.reject(connection, action_id, BY, None)
        return _page(decision_text(decided[0], self.decisions.clock.now()))

    def _check(self, action: PendingAction, digest: str) -> None:
        if action.status is ActionStatus.EXPIRED:
            raise ActionExpired
        if action.status is not ActionStatus.PENDING or action.args_hash[:16] != digest:
            raise AlreadyDecided("this link was used already, or the question is decided")

    def _verify(self, token: str, now: datetime) -> tuple[UUID, str, str]:
        claims, _, mac = token.rpartition(".")
        if len(token) > MAX_TOKEN or not hmac.compare_digest(
            mac.encode(), self._mac(claims).encode()
        ):
            raise NotAuthenticated("this link is not valid")
        action_id, decision, until, digest = claims.split(".")
        if int(until) < now.timestamp():
            raise NotAuthenticated("this link has expired")
        return UUID(action_id), decision, digest

    def _mac(self, claims: str) -> str:
        return self.tokens.sign(PURPOSE, claims)


def _page(text: str, form: str = "", status: int = 200) -> HTMLResponse:
    return HTMLResponse(_PAGE.format(text=escape(text), form=form), status, _HEADERS)
