"""Skills that sessions make: a folder that appears below skills/custom, or a call of ``skill_create``.

A valid skill is registered at once as a draft of its butler, and the owner is told. An invalid one is
reported to its maker with all its errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from butlers.domain.errors import ButlersError, InvalidSkill
from butlers.domain.json_safe import text_safe
from butlers.skills.check.rules import check
from butlers.skills.findings import printable
from butlers.skills.install.draft import SkillDraft, draft_folder, is_temporary, read_manifest
from butlers.skills.reader import read_skill
from butlers.skills.registry import packs
from butlers.skills.registry.adopt import UNVERSIONED
from butlers.skills.registry.catalog import RegisteredSkill, SkillState
from butlers.skills.registry.new_skill import NewSkill, require_valid
from butlers.skills.skill_set import ButlerSkillSet
from butlers.skills.tree import translate_os_errors

log = structlog.get_logger()

CREATED, INVALID = "skill:created", "skill:invalid"
QUIET_MS = 500  # without changes, after which a folder counts as complete
MAX_WAIT_MS = 15_000  # for a folder that keeps changing
CHECK_MS = 60_000  # between checks without changes; more often would cost CPU


@dataclass(frozen=True, slots=True)
class PendingDraft:
    """A draft that waits for approval. ``digest`` distinguishes drafts of the same label."""

    label: str
    description: str
    digest: str


# Tells the owner of a draft; repeated calls tell it once.
TellOwner = Callable[[PendingDraft], Awaitable[None]]


@dataclass(slots=True)
class SkillMaker:
    skill_set: ButlerSkillSet
    tell_owner: TellOwner
    invalid: dict[str, str] = field(default_factory=dict)  # errors, by folder
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    # The owner may have to be told of a draft. True at the start: an earlier daemon may have been killed.
    _notice_due: bool = True
    _told: set[str] = field(default_factory=set)

    async def create(self, draft: SkillDraft) -> RegisteredSkill:
        """Register the draft. Raise InvalidSkill with all errors, and leave nothing of it."""
        async with self._turn:
            registered, created = await asyncio.to_thread(self._create, draft)
        if created:
            await self._tell_created(registered, draft.version)
        return registered

    async def run(self) -> None:
        """Register the folders that exist, and then those that appear."""
        from watchfiles import awatch

        folder = self.skill_set.custom.parent
        if not folder.is_dir():
            await self._send_notices_forever()
            return
        watching = awatch(
            folder,
            watch_filter=self._concerns,
            step=QUIET_MS,
            debounce=MAX_WAIT_MS,
            rust_timeout=CHECK_MS,
            yield_on_timeout=True,
        )
        upcoming = asyncio.ensure_future(anext(watching))
        try:
            await asyncio.sleep(0)  # start watching first, so that no change is missed
            await self.register_all()
            while True:
                await self.send_notices()
                changes = await upcoming
                upcoming = asyncio.ensure_future(anext(watching))
                for name in sorted({self._folder_of(path) for _change, path in changes}):
                    await self.register_folder(name)
                await asyncio.to_thread(folder.stat)  # raises if the folder was removed
        except Exception:
            log.exception("skill folder is not watched any more", folder=str(folder))
        finally:
            upcoming.cancel()
            await asyncio.gather(upcoming, return_exceptions=True)

    async def _send_notices_forever(self) -> None:
        """Without a skill folder there is nothing to watch, but ``skill_create`` still makes drafts."""
        while True:
            await self.send_notices()
            await asyncio.sleep(CHECK_MS / 1000)

    async def register_all(self) -> None:
        custom = self.skill_set.custom
        for path in sorted(custom.iterdir()) if custom.is_dir() else ():
            if path.is_dir() and not is_temporary(path.name):
                await self.register_folder(path.name)

    async def register_folder(self, name: str) -> None:
        """Register the folder of this name, or report its errors once. Never raise: others follow."""
        folder = self.skill_set.custom / name
        try:
            if not await asyncio.to_thread(folder.is_dir):
                self.invalid.pop(name, None)
                return
            async with self._turn:
                registered, created, version = await asyncio.to_thread(self._register, folder)
        except ButlersError as error:
            await self._tell_invalid(name, error.message)
            return
        except Exception as error:
            log.exception("skill not registered", folder=printable(name))
            await self._tell_invalid(name, f"the folder could not be read: {error!r}")
            return
        self.invalid.pop(name, None)
        if created:
            await self._tell_created(registered, version)

    async def send_notices(self) -> None:
        """Tell the owner of each draft that was not told yet; failures are tried again."""
        if not self._notice_due:
            return
        self._notice_due = False
        try:
            drafts = await asyncio.to_thread(self._drafts)
        except Exception:
            self._notice_due = True
            log.exception("drafts cannot be listed", retry_within_s=CHECK_MS // 1000)
            return
        unsent = [draft for draft in drafts if draft.digest not in self._told]
        failed = {draft.label: why for draft in unsent if (why := await self._tell(draft))}
        if failed:
            self._notice_due = True
            log.error("owner not told of a skill", why=failed, retry_within_s=CHECK_MS // 1000)

    async def _tell(self, draft: PendingDraft) -> str | None:
        """Tell the owner of one draft. Return the error, so that the others are still told."""
        try:
            await self.tell_owner(draft)
        except Exception as error:  # noqa: BLE001  (logged with the other failures)
            return repr(error)
        self._told.add(draft.digest)
        return None

    def _drafts(self) -> list[PendingDraft]:
        found = []
        for registered in self.skill_set.registry.catalog().skills.values():
            if registered.owner != self.skill_set.butler:
                continue
            for version, release in registered.releases.items():
                if release.state is SkillState.DRAFT:
                    about = self._about(registered, version)
                    found.append(PendingDraft(f"{registered.id}@{version}", about, release.digest))
        return found

    def _about(self, registered: RegisteredSkill, version: str) -> str:
        home = self.skill_set.registry.home
        reading = read_skill(packs.pack_path(home, registered.id, version, registered.owner))
        if reading.skill is None:
            return f"(its description cannot be read: {'; '.join(map(str, reading.diagnostics))})"
        return text_safe(reading.skill.description)

    def _manifest(self, registered: RegisteredSkill, version: str) -> dict[str, Any]:
        home = self.skill_set.registry.home
        return read_manifest(packs.pack_path(home, registered.id, version, registered.owner))

    def _concerns(self, _change: Any, path: str) -> bool:
        name = self._folder_of(path)
        return bool(name) and not is_temporary(name)

    def _folder_of(self, path: str) -> str:
        try:
            parts = Path(path).relative_to(self.skill_set.custom).parts
        except ValueError:
            return ""
        return parts[0] if parts else ""

    def _create(self, draft: SkillDraft) -> tuple[RegisteredSkill, bool]:
        custom = self.skill_set.custom
        with draft_folder(draft, self.skill_set.butler, custom) as folder:
            registered, created, _version = self._register(folder)
            with translate_os_errors(custom):
                packs.remove(custom / draft.id)
                folder.rename(custom / draft.id)
        return registered, created

    def _register(self, folder: Path) -> tuple[RegisteredSkill, bool, str]:
        """Register the folder as a draft. Return the skill, whether the version is new, and the version."""
        registry = self.skill_set.registry
        new = NewSkill(folder, by=self.skill_set.butler, state=SkillState.DRAFT)
        require_valid(new, check(folder))
        with registry.staged(new) as staged:
            if staged.version.startswith(f"{UNVERSIONED}+"):
                raise InvalidSkill(
                    f"{folder.name} has no version: write `version: 1.0.0` into its front matter",
                    hint="each change needs a new version",
                )
            before = registry.catalog().skills.get(staged.skill.name)
            registered = registry.add(staged, update=before is not None)
        return registered, before is None or staged.version not in before.releases, staged.version

    async def _tell_created(self, registered: RegisteredSkill, version: str) -> None:
        manifest = await asyncio.to_thread(self._manifest, registered, version)
        log.info(CREATED, skill=manifest, createdBy=registered.owner, state=str(SkillState.DRAFT))
        self._notice_due = True
        await self.send_notices()

    async def _tell_invalid(self, name: str, errors: str) -> None:
        if self.invalid.get(name) == errors:
            return
        self.invalid[name] = errors
        log.info(INVALID, folder=name, createdBy=self.skill_set.butler, errors=errors)
