"""Skills that sessions make: a folder that appears below skills/custom, or what ``skill_create`` is told.

A valid one is registered at once as a draft of its butler. One that is not valid is told to its maker with
all that is wrong with it.
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
from butlers.skills.install.draft import SkillDraft, draft_folder, is_in_the_making, manifest_of
from butlers.skills.registry import packs
from butlers.skills.registry.catalog import RegisteredSkill, SkillState
from butlers.skills.registry.registry import NewSkill
from butlers.skills.skill_set import ButlerSkillSet
from butlers.skills.tree import translate_os_errors

log = structlog.get_logger()

CREATED, INVALID = "skill:created", "skill:invalid"
QUIET_MS = 500  # nothing has changed for so long: whoever writes it has finished
LONGEST_MS = 15_000  # somebody who never stops is not waited for
LOOKS_UP_MS = 60_000  # the watching thread, when nothing happens: more often would cost something


@dataclass(frozen=True, slots=True)
class Made:
    """A draft that waits for the owner. ``digest`` tells it from another of the same label."""

    label: str
    description: str
    digest: str


# Tells the owner of it, however often it is asked to, once.
TellOwner = Callable[[Made], Awaitable[None]]


@dataclass(slots=True)
class SkillMaker:
    shelf: ButlerSkillSet
    tell_owner: TellOwner
    invalid: dict[str, str] = field(default_factory=dict)  # what is wrong, by folder
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    # Whether the owner may have to be told of a draft: at the start somebody may have been killed before.
    _owes: bool = True
    _told: set[str] = field(default_factory=set)

    async def create(self, draft: SkillDraft) -> RegisteredSkill:
        """InvalidSkill tells all that is wrong; nothing is left of it then."""
        async with self._turn:
            registered, created = await asyncio.to_thread(self._create, draft)
        if created:
            await self._tell_created(registered, draft.version)
        return registered

    async def run(self) -> None:
        """Take what is there, and then whatever appears."""
        from watchfiles import awatch

        folder = self.shelf.custom.parent
        if not folder.is_dir():
            await self._keep_telling()
            return
        watching = awatch(
            folder,
            watch_filter=self._concerns,
            step=QUIET_MS,
            debounce=LONGEST_MS,
            rust_timeout=LOOKS_UP_MS,
            yield_on_timeout=True,
        )
        upcoming = asyncio.ensure_future(anext(watching))
        try:
            await asyncio.sleep(0)  # it watches from its first step on: nothing falls in between
            await self.take_all()
            while True:
                await self.tell_owed()
                changes = await upcoming
                upcoming = asyncio.ensure_future(anext(watching))
                for name in sorted({self._folder_of(path) for _change, path in changes}):
                    await self.take(name)
                await asyncio.to_thread(folder.stat)  # what was removed is watched by nobody
        except Exception:
            log.exception("skills are not watched any more", folder=str(folder))
        finally:
            upcoming.cancel()
            await asyncio.gather(upcoming, return_exceptions=True)

    async def _keep_telling(self) -> None:
        """Without a folder for skills there is nothing to take; what a tool draft_folder is told all the same."""
        while True:
            await self.tell_owed()
            await asyncio.sleep(LOOKS_UP_MS / 1000)

    async def take_all(self) -> None:
        custom = self.shelf.custom
        for path in sorted(custom.iterdir()) if custom.is_dir() else ():
            if path.is_dir() and not is_in_the_making(path.name):
                await self.take(path.name)

    async def take(self, name: str) -> None:
        """Register the folder of this name, or say what is wrong with it, once. Never raises for a folder:
        the next one is to be taken too."""
        folder = self.shelf.custom / name
        try:
            if not await asyncio.to_thread(folder.is_dir):
                self.invalid.pop(name, None)
                return
            async with self._turn:
                registered, created, version = await asyncio.to_thread(self._take, folder)
        except ButlersError as error:
            await self._tell_invalid(name, error.message)
            return
        except Exception as error:
            log.exception("skill not taken", folder=printable(name))
            await self._tell_invalid(name, f"it could not be read: {error!r}")
            return
        self.invalid.pop(name, None)
        if created:
            await self._tell_created(registered, version)

    async def tell_owed(self) -> None:
        """Tell the owner of every draft that they may not have heard of; what fails is tried again."""
        if not self._owes:
            return
        self._owes = False
        try:
            drafts = await asyncio.to_thread(self._drafts)
        except Exception:
            self._owes = True
            log.exception("drafts can not be listed", again_within_s=LOOKS_UP_MS // 1000)
            return
        untold = [draft for draft in drafts if draft.digest not in self._told]
        failed = {draft.label: why for draft in untold if (why := await self._tell(draft))}
        if failed:
            self._owes = True
            log.error("owner not told of a skill", why=failed, again_within_s=LOOKS_UP_MS // 1000)

    async def _tell(self, draft: Made) -> str | None:
        """What was registered is registered, and the next is told of, though nobody could be told of this."""
        try:
            await self.tell_owner(draft)
        except Exception as error:  # noqa: BLE001  (told with the others that failed)
            return repr(error)
        self._told.add(draft.digest)
        return None

    def _drafts(self) -> list[Made]:
        found = []
        for registered in self.shelf.registry.catalog().skills.values():
            if registered.owner != self.shelf.butler:
                continue
            for version, release in registered.releases.items():
                if release.state is SkillState.DRAFT:
                    about = self._about(registered, version)
                    found.append(Made(f"{registered.id}@{version}", about, release.digest))
        return found

    def _about(self, registered: RegisteredSkill, version: str) -> str:
        try:
            return text_safe(str(self._manifest(registered, version)["description"]))
        except (ButlersError, OSError, ValueError, LookupError) as error:
            return f"(what it is for can not be read: {error})"

    def _manifest(self, registered: RegisteredSkill, version: str) -> dict[str, Any]:
        home = self.shelf.registry.home
        return manifest_of(packs.pack_path(home, registered.id, version, registered.owner))

    def _concerns(self, _change: Any, path: str) -> bool:
        name = self._folder_of(path)
        return bool(name) and not is_in_the_making(name)

    def _folder_of(self, path: str) -> str:
        try:
            parts = Path(path).relative_to(self.shelf.custom).parts
        except ValueError:
            return ""
        return parts[0] if parts else ""

    def _create(self, draft: SkillDraft) -> tuple[RegisteredSkill, bool]:
        custom = self.shelf.custom
        with draft_folder(draft, self.shelf.butler, custom) as folder:
            registered, created = self._register(folder, draft.id, draft.version)
            with translate_os_errors(custom):
                packs.remove(custom / draft.id)
                folder.rename(custom / draft.id)
        return registered, created

    def _take(self, folder: Path) -> tuple[RegisteredSkill, bool, str]:
        checked = check(folder)
        skill = checked.skill
        if skill is None or not checked.valid or skill.version is None:
            raise InvalidSkill(
                f"{folder.name} is not valid:", diagnostics=checked.errors_in(Path(folder.name))
            )
        return *self._register(folder, skill.name, skill.version), skill.version

    def _register(self, folder: Path, name: str, version: str) -> tuple[RegisteredSkill, bool]:
        """What is registered now, and whether this version is new."""
        registry = self.shelf.registry
        before = registry.catalog().skills.get(name)
        new = NewSkill(folder, by=self.shelf.butler, state=SkillState.DRAFT)
        known = before is not None
        registered = registry.update(new) if known else registry.register(new)
        return registered, before is None or version not in before.releases

    async def _tell_created(self, registered: RegisteredSkill, version: str) -> None:
        manifest = await asyncio.to_thread(self._manifest, registered, version)
        log.info(CREATED, skill=manifest, createdBy=registered.owner, state=str(SkillState.DRAFT))
        self._owes = True
        await self.tell_owed()

    async def _tell_invalid(self, name: str, errors: str) -> None:
        if self.invalid.get(name) == errors:
            return
        self.invalid[name] = errors
        log.info(INVALID, folder=name, createdBy=self.shelf.butler, errors=errors)
