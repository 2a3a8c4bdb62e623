"""The error tree. The type tells the calling code what to do, the hint tells the person.

A class's docstring is its default message, so each error is described once. ``code`` is the error's name
over MCP and HTTP; ``retryable`` says whether the same call may succeed later. Attributes beyond message,
hint, code and retryable are not sent to peers.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Literal

from butlers.domain.diagnostic import Diagnostic


class ButlersError(Exception):
    """An error occurred."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False
    default_hint: ClassVar[str | None] = None

    def __init__(self, message: str | None = None, *, hint: str | None = None) -> None:
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.hint = hint or self.default_hint
        super().__init__(self.message)
        if self.hint:  # shown in a traceback
            self.add_note(f"hint: {self.hint}")


# -- configuration ---------------------------------------------------------------------------------


class ConfigError(ButlersError):
    """The configuration cannot be used."""

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
    """A fleet is already running in this home directory."""

    code = "already_running"


class ShuttingDown(ButlersError):
    """The butler is shutting down and accepts no new calls."""

    code = "shutting_down"
    retryable = True
    default_hint = "try again in a few seconds"


# -- database --------------------------------------------------------------------------------------


class DatabaseUnavailable(ButlersError):
    """The database cannot be reached."""

    code = "database_unavailable"
    retryable = True
    default_hint = "try again when `butlers status` says healthy"


class DatabaseExhausted(DatabaseUnavailable):
    """The database lacks disk space, memory, connections or a lock, and changed nothing."""

    code = "database_exhausted"
    default_hint = "free disk space or memory; the work waits and is done when there is room"


class ProvisioningError(ButlersError):
    """The database could not be prepared."""

    code = "provisioning_failed"


class MigrationFailed(ButlersError):
    """A migration failed and was rolled back."""

    code = "migration_failed"


# -- queue -----------------------------------------------------------------------------------------


class LeaseLost(ButlersError):
    """Another worker has taken over this item; the late result was discarded."""

    code = "lease_lost"


class QueueFull(ButlersError):
    """The queue is at its capacity."""

    code = "queue_full"
    retryable = True
    default_hint = "try again in a moment"


class TooManyRequests(QueueFull):
    """One source makes more requests than are read."""

    code = "too_many_requests"


class TooManyUnknownSenders(QueueFull):
    """Too many messages from unknown senders are waiting."""

    code = "too_many_strangers"


# -- messages, calls, peers ------------------------------------------------------------------------


class InvalidMessage(ButlersError):
    """The message cannot be accepted."""

    code = "invalid_message"


class MessageTooLarge(InvalidMessage):
    """The message is too large."""

    code = "message_too_large"


class UnknownChannel(InvalidMessage):
    """The channel does not exist."""

    code = "unknown_channel"


class InvalidArguments(ButlersError):
    """The arguments do not match the tool's parameters."""

    code = "invalid_arguments"


class NotFound(ButlersError):
    """The requested object does not exist."""

    code = "not_found"


class StateConflict(ButlersError):
    """The value was changed by another caller in the meantime."""

    code = "state_conflict"


class NotAllowed(ButlersError):
    """The caller is not allowed to do this."""

    code = "not_allowed"


class NeedsApproval(NotAllowed):
    """The owner has to approve this first."""

    code = "needs_approval"
    action: str = ""  # completes "the butler wants to …"
    why: str = ""

    def __init__(self, message: str, *, action: str, why: str, hint: str | None = None) -> None:
        self.action, self.why = action, why
        super().__init__(message, hint=hint)


class TooManyCalls(NotAllowed):
    """The session has used all its tool calls."""

    code = "too_many_calls"
    default_hint = "make no more calls; say what is done and what is not"


class NotAuthenticated(ButlersError):
    """The bearer token is missing, wrong or expired."""

    code = "not_authenticated"


class PeerUnavailable(ButlersError):
    """A butler does not answer."""

    code = "peer_unavailable"
    retryable = True
    default_hint = "is it running? `make up` starts the fleet, `butlers status` shows each butler"


class AnswerLost(PeerUnavailable):
    """A butler was called and stopped before it answered; the call may or may not have taken effect."""

    code = "answer_lost"


class PeerFailed(ButlersError):
    """A butler sent an answer that cannot be read."""

    code = "peer_failed"


class InternalError(ButlersError):
    """Internal error of the butler; its log has the details."""

    code = "internal_error"


class SessionFailed(ButlersError):
    """The session ended without completing its work."""

    code = "session_failed"


class SessionUnavailable(SessionFailed):
    """The session's model is not available at the moment."""

    code = "session_unavailable"
    retryable = True
    default_hint = "the model or its CLI is unavailable; the work is retried"


class RateLimited(SessionUnavailable):
    """The model's rate limit is reached."""

    code = "rate_limited"
    default_hint = (
        "the model's vendor limits the rate of requests; the work is retried with growing pauses"
    )
    after_s: float | None = None  # shortest pause that the model asked for


class SessionInterrupted(SessionUnavailable):
    """The session ended before it was done, and the cause is unknown."""

    code = "session_interrupted"
    default_hint = "the work is tried again a few times"


class WaitsForOwner(ButlersError):
    """The work waits until the owner has mended something."""

    code = "waits_for_owner"
    retryable = True
    default_hint = "mend it, then send /retry; without that it is tried again by itself later"


class OverBudget(ButlersError):
    """Today's budget is used up."""

    code = "over_budget"
    default_hint = "raise [butler.budget] in butler.toml, or wait until tomorrow"
    until: datetime | None = None  # when the next budget begins


class EarlierMessageWaits(ButlersError):
    """An earlier message of the same conversation has to be handled first."""

    code = "earlier_message_waits"
    retryable = True
    default_hint = "no action is needed; it continues after the earlier message"


class PreviousPartOpen(ButlersError):
    """The previous part of the message is still being handled."""

    code = "previous_part_open"
    retryable = True
    default_hint = "no action is needed; it continues when that part has ended"


class PreviousPartFailed(ButlersError):
    """The previous part of the message, on which this part depends, failed."""

    code = "previous_part_failed"
    default_hint = "replay that part, then this one"


class Postponed(ButlersError):
    """The work is postponed."""

    code = "postponed"
    retryable = True
    default_hint = "no action is needed; it continues by itself"

    def __init__(self, message: str, until: datetime, *, aside: bool = True) -> None:
        super().__init__(message)
        self.until = until
        self.aside = aside  # later items of its lane do not wait for it


class ChannelError(ButlersError):
    """The channel did not accept the delivery."""

    code = "channel_error"
    response: str | None = None  # excerpt of the platform's answer

    def __init__(
        self, message: str | None = None, *, hint: str | None = None, response: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.response = response


class DeliveryRefused(ChannelError):
    """The channel refused the delivery for good."""

    code = "delivery_refused"


class ChannelUnavailable(ChannelError):
    """The channel cannot be reached; nothing was sent."""

    code = "channel_unavailable"
    retryable = True
    default_hint = "no action is needed; the delivery is retried"


class ChannelFailed(ChannelError):
    """The channel answered with a failure; nothing was sent."""

    code = "channel_failed"
    retryable = True
    default_hint = "no action is needed; the delivery is retried"


class ChannelBusy(ChannelError):
    """The channel asks for a pause; nothing was sent."""

    code = "channel_busy"
    retryable = True
    default_hint = "no action is needed; the delivery is retried"
    pause_s: float = 30.0


class CredentialRefused(ChannelError):
    """The platform refused the channel's credential."""

    code = "credential_refused"


class DeliveryUncertain(ChannelError):
    """The outcome of the delivery is unknown."""

    code = "delivery_uncertain"


# -- skills ----------------------------------------------------------------------------------------


class SkillError(ButlersError):
    """The skill has an error."""

    code = "skill_error"
    default_hint = "`butlers skills check FOLDER` shows a skill's errors"


class InvalidSkill(SkillError):
    """The skill is invalid."""

    code = "skill_invalid"
    diagnostics: tuple[Diagnostic, ...] = ()

    def __init__(
        self,
        message: str | None = None,
        *,
        hint: str | None = None,
        diagnostics: tuple[Diagnostic, ...] = (),
    ) -> None:
        self.diagnostics = diagnostics
        lines = [message or "", *(f"  {found}" for found in diagnostics)]
        super().__init__("\n".join(lines).strip() or None, hint=hint)


class SkillNotFound(SkillError):
    """The skill does not exist."""

    code = "skill_not_found"


class SkillTooLarge(SkillError):
    """The skill has too many files or bytes."""

    code = "skill_too_large"
    default_hint = "move data and dependencies out of the skill"


class SkillPathRefused(SkillError):
    """A path in the skill points outside the skill."""

    code = "skill_path_refused"
    default_hint = "a skill may contain only its own files; get it from a source that you trust"


class SkillTaken(SkillError):
    """A skill of this name already exists."""

    code = "skill_taken"


class SkillVersionTaken(SkillError):
    """This version is already registered with different content."""

    code = "skill_version_taken"
    default_hint = "a registered version never changes; raise the version and register again"


class SkillOwnerMismatch(SkillError):
    """The skill belongs to another owner."""

    code = "skill_owner_mismatch"


class SkillInUse(SkillError):
    """A butler uses the skill."""

    code = "skill_in_use"


class SkillUsersUnknown(SkillError):
    """The users of the skill cannot be determined."""

    code = "skill_users_unknown"
    default_hint = "repair the file that cannot be read, or remove it if that butler is gone"


class SkillChanged(SkillError):
    """The skill's files differ from those that were registered."""

    code = "skill_changed"


class SkillUnresolved(SkillError):
    """The requested skills cannot be used together."""

    code = "skill_unresolved"


class SkillCycle(SkillUnresolved):
    """The skills depend on each other in a cycle."""

    code = "skill_cycle"
    default_hint = "remove one of these dependencies"


class SkillConflict(SkillUnresolved):
    """Two skills require incompatible versions of a third."""

    code = "skill_conflict"


class SkillArchiveRefused(SkillError):
    """The archive cannot be unpacked safely."""

    code = "skill_archive_refused"
    default_hint = "download it again, or unpack and inspect it yourself, and install the folder"


class SkillConsentMissing(SkillError):
    """The skill's permissions have not been approved."""

    code = "skill_consent_missing"


class SkillRegistryBroken(SkillError):
    """The skill registry cannot be read."""

    code = "skill_registry_broken"


class SkillScriptError(SkillError):
    """The skill script cannot be run with these arguments."""

    code = "skill_script_error"
    default_hint = "`butlers skills show ID` lists a skill's scripts"


class SkillScriptNotFound(SkillScriptError):
    """The skill does not have this script."""

    code = "skill_script_not_found"


class SkillInterpreterMissing(SkillScriptError):
    """The script's interpreter is not installed."""

    code = "skill_interpreter_missing"


class SkillSandboxMissing(SkillScriptError):
    """This system cannot make the sandbox that scripts from elsewhere run in."""

    code = "skill_sandbox_missing"
    default_hint = (
        "allow user namespaces on this system (`butlers doctor` says what is missing), or set "
        'sandbox = "optional" in fleet.toml to run such scripts without a sandbox'
    )


class SkillScriptTimeout(SkillScriptError):
    """The script took too long and was stopped."""

    code = "skill_script_timeout"
    default_hint = "give it less work at a time, or allow it more time"


class SkillScriptOutputTooLarge(SkillScriptError):
    """The script printed too much output and was stopped."""

    code = "skill_script_output_too_large"
    default_hint = "let the script write a file and print its name"


class SkillFetchFailed(SkillError):
    """The skill's source could not be fetched."""

    code = "skill_fetch_failed"
    default_hint = "check the address, the commit and your access rights"


class SkillInstallationError(SkillError, RuntimeError):
    """The skill could not be installed in the session's home directory."""

    code = "skill_installation_error"
    default_hint = "check the free disk space and that the folder is writable"
    skill_name: str | None = None
    skills_dir: Path | None = None
    source: Literal["inline", "ref"] | None = None  # written from text, or copied from a folder
    cause: BaseException | None = None

    def __init__(
        self,
        message: str | None = None,
        *,
        hint: str | None = None,
        skill_name: str | None = None,
        skills_dir: Path | None = None,
        source: Literal["inline", "ref"] | None = None,
        cause: BaseException | None = None,
    ) -> None:
        self.skill_name, self.skills_dir = skill_name, skills_dir
        self.source, self.cause = source, cause
        super().__init__(message, hint=hint)


class SkillRefError(SkillError, ValueError):
    """The referenced folder is not a skill."""

    code = "skill_ref_error"
    path: Path | None = None
    reason: str | None = None
    details: str | None = None

    def __init__(self, path: Path, reason: str, details: str | None = None) -> None:
        self.path, self.reason, self.details = path, reason, details
        more = f": {details}" if details else ""
        super().__init__(f"{path} is not a skill ({reason}){more}")


# -- prompts ---------------------------------------------------------------------------------------


class PromptValidationError(ButlersError, ValueError):
    """The prompt, or a part of it, is invalid."""

    code = "prompt_invalid"


class VisibilityExpansionRequired(ButlersError):
    """The model asks for the full text of summarized sections."""

    code = "visibility_expansion_required"
    requested_overrides: Mapping[str, Any] = {}
    reason: str = ""
    section_keys: tuple[str, ...] = ()

    def __init__(
        self, requested_overrides: Mapping[str, Any], reason: str, section_keys: tuple[str, ...]
    ) -> None:
        self.requested_overrides = requested_overrides
        self.reason, self.section_keys = reason, section_keys
        super().__init__(f"sections to expand: {', '.join(section_keys)}")


class PromptEvaluationError(ButlersError):
    """The prompt could not be evaluated."""

    code = "prompt_evaluation_failed"


class DeadlineExceeded(PromptEvaluationError):
    """The time limit was exceeded."""

    code = "prompt_deadline_exceeded"
    default_hint = "allow more time, or ask for less"


class OutputParseError(PromptEvaluationError):
    """The answer does not have the form that the prompt requires."""

    code = "prompt_output_invalid"
    text: str = ""  # the answer


def _tree(root: type[ButlersError]) -> dict[str, type[ButlersError]]:
    """Return the classes by code. A subclass that keeps the code of its base is not among them."""
    found = {root.code: root}
    for child in root.__subclasses__():
        found = _tree(child) | found
    return found


def error_from_wire(code: str, message: str, hint: str | None, retryable: bool) -> ButlersError:
    """Rebuild the typed error that a peer raised. An unknown code gives a plain ButlersError."""
    kind = _tree(ButlersError).get(code, ButlersError)
    error = kind.__new__(kind)
    ButlersError.__init__(error, message, hint=hint)
    if error.retryable != retryable:
        error.retryable = retryable  # type: ignore[misc]  # on this instance, as the peer said
    return error
