"""One error tree. The type says what the caller may do, the hint what the person may do.

A class's docstring is its default message, so each error is described once. ``code`` is the name
that travels over MCP and HTTP; ``retryable`` tells a machine whether the same call may succeed later.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Literal

from butlers.domain.diagnostic import Diagnostic


class ButlersError(Exception):
    """Something went wrong."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False
    default_hint: ClassVar[str | None] = None

    def __init__(self, message: str | None = None, *, hint: str | None = None) -> None:
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.hint = hint or self.default_hint
        super().__init__(self.message)
        if self.hint:  # for whoever uses a package of ours alone, and sees a traceback
            self.add_note(f"hint: {self.hint}")


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


class TooManyStrangers(QueueFull):
    """There is no room for one more message of somebody unknown."""

    code = "too_many_strangers"


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


class RateLimited(SessionUnavailable):
    """The model takes no more for now."""

    code = "rate_limited"
    default_hint = "its vendor limits how much may be asked; it is tried again, with growing pauses"
    after_s: float | None = None  # not before, as the model said


class OverBudget(ButlersError):
    """Today's budget is used up."""

    code = "over_budget"
    default_hint = "raise [butler.budget] in butler.toml, or wait until tomorrow"
    until: datetime | None = None  # when there is a new one


class EarlierMessageWaits(ButlersError):
    """An earlier message of the same conversation has to come first."""

    code = "earlier_message_waits"
    retryable = True
    default_hint = "nothing has to be done; it goes on when the earlier one has"


class PreviousPartOpen(ButlersError):
    """The part of the message before this one is still being dealt with."""

    code = "previous_part_open"
    retryable = True
    default_hint = "nothing has to be done; it goes on when that part has ended"


class PreviousPartFailed(ButlersError):
    """The part of the message before this one failed, and this one depends on it."""

    code = "previous_part_failed"
    default_hint = "replay that part, then this one"


class Postponed(ButlersError):
    """The work is kept for later."""

    code = "postponed"
    retryable = True
    default_hint = "nothing has to be done; it goes on by itself"

    def __init__(self, message: str, until: datetime, *, aside: bool = True) -> None:
        super().__init__(message)
        self.until = until
        self.aside = aside  # nobody behind it in its lane waits for it until then


class ChannelError(ButlersError):
    """The channel did not take the delivery."""

    code = "channel_error"
    response: str | None = None  # an excerpt of what the platform said

    def __init__(
        self, message: str | None = None, *, hint: str | None = None, response: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.response = response


class DeliveryRefused(ChannelError):
    """The channel will never take this delivery."""

    code = "delivery_refused"


class ChannelUnavailable(ChannelError):
    """The channel can not be reached; nothing was sent."""

    code = "channel_unavailable"
    retryable = True
    default_hint = "nothing has to be done; it is tried again"


class ChannelFailed(ChannelError):
    """The channel was asked and says that it failed; nothing was sent."""

    code = "channel_failed"
    retryable = True
    default_hint = "nothing has to be done; it is tried again"


class ChannelBusy(ChannelError):
    """The channel asks for a pause; nothing was sent."""

    code = "channel_busy"
    retryable = True
    default_hint = "nothing has to be done; it is tried again"
    pause_s: float = 30.0


class DeliveryUncertain(ChannelError):
    """Nobody knows whether the delivery went out."""

    code = "delivery_uncertain"


# -- skills ----------------------------------------------------------------------------------------


class SkillError(ButlersError):
    """Something is wrong with a skill."""

    code = "skill_error"
    default_hint = "`butlers skills check FOLDER` shows what is wrong with a skill"


class InvalidSkill(SkillError):
    """The skill can not be used as it is."""

    code = "skill_invalid"
    diagnostics: tuple[Diagnostic, ...] = ()  # they do not travel

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
    """There is no such skill."""

    code = "skill_not_found"


class SkillTooLarge(SkillError):
    """The skill has more files or bytes than a skill may have."""

    code = "skill_too_large"
    default_hint = "a skill is small: move data and dependencies out of it"


class SkillPathRefused(SkillError):
    """A path in the skill leads out of it."""

    code = "skill_path_refused"
    default_hint = "a skill holds its own files only: get it from somebody you trust"


class SkillTaken(SkillError):
    """There is a skill of this name."""

    code = "skill_taken"


class SkillVersionTaken(SkillError):
    """This version is registered with other content."""

    code = "skill_version_taken"
    default_hint = "a registered version never changes: raise the version and register that"


class SkillOwnerMismatch(SkillError):
    """The skill belongs to somebody else."""

    code = "skill_owner_mismatch"


class SkillInUse(SkillError):
    """A butler uses the skill."""

    code = "skill_in_use"


class SkillUsersUnknown(SkillError):
    """Nobody can tell whether a butler uses the skill."""

    code = "skill_users_unknown"
    default_hint = "mend what can not be read, or remove it if that butler is gone"


class SkillChanged(SkillError):
    """The files of a skill are not the ones that were registered."""

    code = "skill_changed"


class SkillUnresolved(SkillError):
    """The skills that are asked for can not be had together."""

    code = "skill_unresolved"


class SkillCycle(SkillUnresolved):
    """Skills depend on each other in a circle."""

    code = "skill_cycle"
    default_hint = "one of them must stop needing the other"


class SkillConflict(SkillUnresolved):
    """Two skills need versions of a third that exclude each other."""

    code = "skill_conflict"


class SkillArchiveRefused(SkillError):
    """The archive is not one that can be unpacked safely."""

    code = "skill_archive_refused"
    default_hint = "get it again, or unpack it yourself, look, and install the folder"


class SkillConsentMissing(SkillError):
    """Nobody has agreed to what the skill may do."""

    code = "skill_consent_missing"


class SkillRegistryBroken(SkillError):
    """The registry of skills can not be read."""

    code = "skill_registry_broken"


class SkillScriptError(SkillError):
    """A script of a skill can not be run as it was asked for."""

    code = "skill_script_error"
    default_hint = "`butlers skills show ID` lists the scripts of a skill"


class SkillScriptNotFound(SkillScriptError):
    """The skill has no such script."""

    code = "skill_script_not_found"


class SkillInterpreterMissing(SkillScriptError):
    """What the script has to be run with is not installed."""

    code = "skill_interpreter_missing"


class SkillScriptTimeout(SkillScriptError):
    """The script took too long and was ended."""

    code = "skill_script_timeout"
    default_hint = "ask it for less at once, or allow it more time"


class SkillScriptOutputTooLarge(SkillScriptError):
    """The script said more than a script may, and was ended."""

    code = "skill_script_output_too_large"
    default_hint = "let it write a file, and answer with its name"


class SkillFetchFailed(SkillError):
    """The source of a skill could not be fetched."""

    code = "skill_fetch_failed"
    default_hint = "check the address, the commit, and that you may read it"


class SkillInstallationError(SkillError, RuntimeError):
    """A skill could not be put into a session's home."""

    code = "skill_installation_error"
    default_hint = "check free space, and that the folder may be written"
    skill_name: str | None = None  # these do not travel
    skills_dir: Path | None = None
    source: Literal["inline", "ref"] | None = None  # written by us, or copied from a folder
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
    """A folder that is referred to is no skill."""

    code = "skill_ref_error"
    path: Path | None = None  # these do not travel
    reason: str | None = None
    details: str | None = None

    def __init__(self, path: Path, reason: str, details: str | None = None) -> None:
        self.path, self.reason, self.details = path, reason, details
        more = f": {details}" if details else ""
        super().__init__(f"{path} is no skill ({reason}){more}")


# -- prompts ---------------------------------------------------------------------------------------


class PromptValidationError(ButlersError, ValueError):
    """A prompt, or a part of one, is not made as it must be."""

    code = "prompt_invalid"


class VisibilityExpansionRequired(ButlersError):
    """The model asks for sections that are summarised; whoever evaluates the prompt opens them."""

    code = "visibility_expansion_required"
    requested_overrides: Mapping[str, Any] = {}  # these do not travel
    reason: str = ""
    section_keys: tuple[str, ...] = ()

    def __init__(
        self, requested_overrides: Mapping[str, Any], reason: str, section_keys: tuple[str, ...]
    ) -> None:
        self.requested_overrides = requested_overrides
        self.reason, self.section_keys = reason, section_keys
        super().__init__(f"to be opened: {', '.join(section_keys)}")


class PromptEvaluationError(ButlersError):
    """A prompt could not be evaluated."""

    code = "prompt_evaluation_failed"


class DeadlineExceeded(PromptEvaluationError):
    """There was not enough time."""

    code = "prompt_deadline_exceeded"
    default_hint = "give it more time, or ask for less"


class OutputParseError(PromptEvaluationError):
    """The answer is not of the form that the prompt asks for."""

    code = "prompt_output_invalid"
    text: str = ""  # what was answered; it does not travel


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
