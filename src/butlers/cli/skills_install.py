"""``butlers skills install``: choose skills of a source, ask for consent, and install them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from butlers.cli.fleet import OWNER
from butlers.cli.output import ask_words, confirm, print_json, print_line, print_message
from butlers.cli.skills_report import offer_document, print_offer, warn_of_cycle
from butlers.domain.caller import CallerKind
from butlers.domain.errors import (
    InvalidArguments,
    NotFound,
    PeerUnavailable,
    SkillError,
    SkillNotFound,
)
from butlers.skills.install.collection import CollectionSkill, SkillCollection, listed
from butlers.skills.install.install import InstallOffer, RegistryInstaller
from butlers.skills.install.mcp_source import McpSource
from butlers.skills.install.source import OpenedSource, SkillAddress, open_source
from butlers.wire import directory
from butlers.wire.client import McpClient
from butlers.wire.directory import RunningButler
from butlers.wire.http import HttpFailed
from butlers.wire.tokens import FleetCredential, FleetKey

_ALL = "all"


@dataclass(frozen=True, slots=True)
class SkillChoice:
    """Skills of a collection to install: these names, or all of them; ``yes`` asks no question, and
    ``as_json`` prints one list of what was offered and installed."""

    names: tuple[str, ...] = ()
    everything: bool = False
    yes: bool = False
    as_json: bool = False
    documents: list[dict[str, Any]] = field(default_factory=list)

    def show(self, offer: InstallOffer) -> None:
        self.documents.append({**offer_document(offer), "installed": False})
        if not self.as_json:
            print_offer(offer)

    def agrees(self, offer: InstallOffer) -> bool:
        if self.yes:
            return True
        return sys.stdin.isatty() and confirm(f"install {offer.skill.label}?")


def signed_in(source: SkillAddress, fleet: Path | None, home: Path) -> SkillAddress:
    """Return the source with the owner's token if it is a running butler of the fleet.

    The butler proves first that it has the fleet's key. Every other server gets no token.
    """
    if not isinstance(source, McpSource):
        if fleet is not None:
            raise InvalidArguments("--fleet is for the address of a butler: mcp+http://…")
        return source
    running = directory.entries(fleet or home).values()
    entry = next((one for one in running if one.url == source.url), None)
    if entry is not None:
        return replace(source, token=asyncio.run(_owner_token(fleet or home, entry)))
    if fleet is not None:
        known = ", ".join(f"{one.name} {one.url}" for one in running) or "none"
        raise NotFound(f"no butler of {fleet} runs at {source.origin}", hint=f"running: {known}")
    return source


async def _owner_token(home: Path, butler: RunningButler) -> str:
    credential = FleetCredential(FleetKey.load(home), CallerKind.OWNER, OWNER, butler.name)
    async with McpClient(butler.name, butler.url, credential) as client:
        try:
            return await client.bearer()
        except (OSError, HttpFailed) as error:
            raise PeerUnavailable(f"{butler.name} does not listen at {butler.url}") from error


def install_from(installer: RegistryInstaller, source: SkillAddress, choice: SkillChoice) -> bool:
    """Install the chosen skills of the source. Return False if one of several failed."""
    with open_source(source) as opened:
        chosen = _chosen(opened, choice)
        if len(chosen) == 1:
            _install(installer, opened, chosen[0], choice)
            failed = []
        else:
            failed = _install_all(installer, opened, chosen, choice)
    if choice.as_json:
        print_json(choice.documents)
    return not failed


def _install_all(
    installer: RegistryInstaller,
    opened: OpenedSource,
    chosen: Sequence[CollectionSkill],
    choice: SkillChoice,
) -> list[CollectionSkill]:
    """Install one after the other. Return those that failed; their errors are printed."""
    if installer.name or installer.version:
        raise InvalidArguments(
            f"--name and --version apply to one skill, not to {len(chosen)}",
            hint="install them one by one with --skill",
        )
    return [skill for skill in chosen if not _installed(installer, opened, skill, choice)]


def _chosen(opened: OpenedSource, choice: SkillChoice) -> Sequence[CollectionSkill]:
    found = opened.collection()
    for name in found.elsewhere:
        print_message("warning", f"the plugin {name} lies in another repository")
    if choice.names:
        return found.choose(choice.names)
    if choice.everything and found.skills:
        return found.skills
    root = [skill for skill in found.skills if not skill.path]
    if root or not found.skills:  # a folder without skills has its error from the installer
        return root or [CollectionSkill()]
    return found.skills if len(found.skills) == 1 else _asked(found)


def _asked(found: SkillCollection) -> Sequence[CollectionSkill]:
    """Let the person choose on a terminal. Raise SkillNotFound elsewhere."""
    if not sys.stdin.isatty():
        raise SkillNotFound(
            f"the source holds {len(found.skills)} skills: {listed([one.name for one in found.skills])}",
            hint="add --skill NAME, or --all",
        )
    for number, skill in enumerate(found.skills, start=1):
        print_line(f"{number:4}  {skill.label}  ({skill.path})", err=True)
    words = ask_words("install which? numbers, names, or all")
    if words == [_ALL]:
        return found.skills
    numbered = {str(number): skill.path for number, skill in enumerate(found.skills, start=1)}
    return found.choose([numbered.get(word, word) for word in words])


def _installed(
    installer: RegistryInstaller, opened: OpenedSource, skill: CollectionSkill, choice: SkillChoice
) -> bool:
    try:
        _install(installer, opened, skill, choice)
    except SkillError as error:
        print_message("error", f"{skill.path}: {error}")
        print_message("hint", error.hint or "install it alone with --skill")
        return False
    return True


def _install(
    installer: RegistryInstaller, opened: OpenedSource, skill: CollectionSkill, choice: SkillChoice
) -> None:
    added = installer.install_one(opened, skill, choice.agrees, choice.show)
    choice.documents[-1]["installed"] = True
    if not choice.as_json:
        print_line(f"installed {added.id}: {', '.join(added.versions)}")
    warn_of_cycle(installer.registry, added.id)
