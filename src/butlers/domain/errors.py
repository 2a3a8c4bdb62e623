"""One error tree. The type says what the caller may do, the hint what the person may do.

A class's docstring is its default message, so each error is described once. ``code`` is the name
that travels over MCP and HTTP; ``retryable`` tells a machine whether the same call may succeed later.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import ClassVar


class ButlersError(Exception):
    """Something went wrong."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False
    default_hint: ClassVar[str | None] = None

    def __init__(self, message: str | None = None, *, hint: str | None = None) -> None:
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.hint = hint or self.default_hint
        super().__init__(self.message)


# -- configuration ---------------------------------------------------------------------------------


class ConfigError(ButlersError):
    """The configuration can not be used."""

    code = "config_error"

    def __init__(
        self,
        message: str | None = None,
        *,
        hint: str | None = None,
        path: Path | None = None,
        key: str | None = None,
        line: int | None = None,
    ) -> None:
        self.path, self.key, self.line = path, key, line
        where = f"{path}:{line}" if path and line else str(path or "")
        super().__init__(f"{where}: {message}" if where and message else message, hint=hint)


class ConfigMissing(ConfigError):
    """There is no configuration file."""

    code = "config_missing"


class ConfigSyntaxError(ConfigError):
    """The file is not valid TOML."""

    code = "config_syntax"


class ConfigInvalid(ConfigError):
    """A key is missing, unknown or has a value that is not allowed."""

    code = "config_invalid"


class UnresolvedVariables(ConfigError):
    """The configuration names environment variables that are not set."""

    code = "config_unresolved"


# -- starting and stopping -------------------------------------------------------------------------


class PhaseFailed(ButlersError):
    """A start-up phase failed."""

    code = "phase_failed"

    def __init__(self, phase: str, cause: BaseException) -> None:
        self.phase = phase
        hint = cause.hint if isinstance(cause, ButlersError) else None
        super().__init__(f"start-up phase {phase!r} failed: {cause}", hint=hint)


class PortTaken(ButlersError):
    """The port is already in use."""

    code = "port_taken"


class AlreadyRunning(ButlersError):
    """This home already has a running fleet."""

    code = "already_running"


class ShuttingDown(ButlersError):
    """The butler is shutting down and takes no new calls."""

    code = "shutting_down"
    retryable = True
    default_hint = "try again in a few seconds"


# -- database --------------------------------------------------------------------------------------


class DatabaseUnavailable(ButlersError):
    """The database can not be reached."""

    code = "database_unavailable"
    retryable = True
    default_hint = "try again when `butlers status` says healthy"


class ProvisioningError(ButlersError):
    """The database could not be prepared."""

    code = "provisioning_failed"


class MigrationFailed(ButlersError):
    """A migration failed; nothing of it was kept."""

    code = "migration_failed"


# -- queue -----------------------------------------------------------------------------------------


class LeaseLost(ButlersError):
    """Another worker has taken this item over; what this one did late does not count."""

    code = "lease_lost"


class QueueFull(ButlersError):
    """The queue is at its capacity."""

    code = "queue_full"
    retryable = True
    default_hint = "try again in a moment"


# -- messages, calls, peers ------------------------------------------------------------------------


class InvalidMessage(ButlersError):
    """The message can not be taken."""

    code = "invalid_message"


class MessageTooLarge(InvalidMessage):
    """The message is larger than a message may be."""

    code = "message_too_large"


class UnknownChannel(InvalidMessage):
    """There is no such channel."""

    code = "unknown_channel"


class InvalidArguments(ButlersError):
    """The arguments do not fit the tool."""

    code = "invalid_arguments"


class NotFound(ButlersError):
    """There is no such thing."""

    code = "not_found"


class StateConflict(ButlersError):
    """Somebody else changed the value meanwhile."""

    code = "state_conflict"


class NotAllowed(ButlersError):
    """This caller may not do that."""

    code = "not_allowed"


class NotAuthenticated(ButlersError):
    """The bearer token is missing, wrong or expired."""

    code = "not_authenticated"


class PeerUnavailable(ButlersError):
    """A butler does not answer."""

    code = "peer_unavailable"
    retryable = True
    default_hint = "is it running? `make up` starts the fleet, `butlers status` shows each butler"


class AnswerLost(PeerUnavailable):
    """A butler was asked and went away before it answered; it may have done it or not."""

    code = "answer_lost"


class PeerFailed(ButlersError):
    """A butler answered with something that is not an answer."""

    code = "peer_failed"


class InternalError(ButlersError):
    """The butler made a mistake; its log has the details."""

    code = "internal_error"


class SessionFailed(ButlersError):
    """A session ended without doing its work."""

    code = "session_failed"


class SessionUnavailable(SessionFailed):
    """A session could not think now, and may later."""

    code = "session_unavailable"
    retryable = True
    default_hint = "its model or its CLI is not to be had right now; it is tried again"


class OverBudget(ButlersError):
    """Today's budget is used up."""

    code = "over_budget"
    default_hint = "raise [butler.budget] in butler.toml, or wait until tomorrow"
    first_today: bool = False
    until: datetime | None = None  # when there is a new one


class Postponed(ButlersError):
    """The work is kept for later."""

    code = "postponed"
    retryable = True
    default_hint = "nothing has to be done; it goes on by itself"

    def __init__(self, message: str, until: datetime) -> None:
        super().__init__(message)
        self.until = until


class DeliveryRefused(ButlersError):
    """The channel will never take this delivery."""

    code = "delivery_refused"


def _tree(root: type[ButlersError]) -> dict[str, type[ButlersError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


def error_from_wire(code: str, message: str, hint: str | None, retryable: bool) -> ButlersError:
    """The typed error a peer raised, rebuilt from what travelled. An unknown code stays a ButlersError."""
    kind = _tree(ButlersError).get(code, ButlersError)
    error = kind.__new__(kind)
    ButlersError.__init__(error, message, hint=hint)
    if error.retryable != retryable:
        error.retryable = retryable  # type: ignore[misc]  # this instance's, as the peer judged it
    return error
