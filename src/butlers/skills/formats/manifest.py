"""manifest.json: a pack with an id, a version and an owner."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from butlers.config.frozen import freeze
from butlers.config.locate import Place
from butlers.domain.errors import InvalidSkill
from butlers.skills import names
from butlers.skills.findings import Findings, shown
from butlers.skills.formats.allowed_tools import split_tools
from butlers.skills.formats.base import Reading, Source
from butlers.skills.formats.pack_fields import KEYS, PackFields, pack_document
from butlers.skills.formats.text import decode
from butlers.skills.skill import Skill
from butlers.skills.strict import FRONT_MATTER, RESERVED_METADATA, require_writable

REQUIRED = ("id", "name", "version", "description", "owner")
# Filled by the registry; what a person writes there does not count.
REGISTRY = ("usedBy", "registeredAt", "updatedAt")
# The standard's fields, and the spellings under which they may come.
_OPTIONAL = ("license", "compatibility", "metadata")
_TOOLS, _TRIGGERS = ("allowedTools", "allowed-tools"), ("triggerPatterns", "trigger_patterns")
# Keys of a SKILL.md that mean something else here.
_FRONTMATTER = "frontmatter"
KNOWN = (*REQUIRED, *KEYS, *REGISTRY, *_OPTIONAL, *_TOOLS, *_TRIGGERS, _FRONTMATTER)


class Manifest:
    file_names: tuple[str, ...] = ("manifest.json",)

    def read(self, source: Source) -> Reading:
        findings = Findings(source.file)
        document = _document(decode(source.content, findings), findings)
        skill = None if document is None else _Reader(document, findings).skill(source.folder_name)
        return Reading(skill, tuple(findings.diagnostics))

    def render(self, skill: Skill) -> Mapping[str, bytes]:
        require_writable(skill)
        if skill.version is None or skill.owner is None:
            lacking = "version" if skill.version is None else "owner"
            raise InvalidSkill(
                f"the skill {skill.name!r} has no {lacking}, which a pack needs",
                hint="give it one before it becomes a pack",
            )
        extra = {key: value for key, value in skill.extra.items() if key not in KNOWN}
        hidden = {key: value for key, value in skill.extra.items() if key in KNOWN}
        said: dict[str, Any] = {
            "id": skill.name,
            "name": skill.title or skill.name,
            "version": skill.version,
            "description": skill.description,
            **pack_document(skill),
            "license": skill.license,
            "compatibility": skill.compatibility,
            "allowedTools": list(skill.allowed_tools) or None,
            "triggerPatterns": list(skill.trigger_patterns) or None,
            "metadata": skill.metadata or None,
            _FRONTMATTER: hidden or None,
            **extra,
        }
        kept = {key: value for key, value in said.items() if value is not None or key in extra}
        return {"manifest.json": (json.dumps(kept, indent=2, ensure_ascii=False) + "\n").encode()}


def _document(text: str, findings: Findings) -> dict[str, Any] | None:
    duplicates: list[str] = []

    def table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        times = Counter(key for key, _value in pairs)
        duplicates.extend(key for key, number in times.items() if number > 1)
        return dict(pairs)

    try:
        said = json.loads(text, object_pairs_hook=table, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        findings.add("manifest-not-json", error.msg, at=Place(error.lineno, error.colno))
        return None
    except (ValueError, RecursionError) as error:
        findings.add("manifest-not-json", str(error)[:200] or "nested too deeply")
        return None
    for key in duplicates:
        findings.add("manifest-duplicate-key", f"{shown(key)} stands twice", entry=key[:64])
    if isinstance(said, dict):
        return said
    findings.add("manifest-not-json", "a manifest is a JSON object", at=Place(1, 1))
    return None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


class _Reader:
    def __init__(self, document: dict[str, Any], findings: Findings) -> None:
        self._document, self._findings = document, findings
        self._fields = PackFields(document, findings)

    def skill(self, folder: str) -> Skill:
        required = {key: self._required(key) for key in REQUIRED}
        pack = self._fields.read()
        pack["owner"] = required["owner"] or None
        self._check_id(required["id"])
        self._check_version(required["version"])
        self._note_ignored()
        description = required["description"].strip()
        if len(description) > names.MAX_DESCRIPTION:
            self._fields.add(
                "description-too-long",
                "description",
                f"the description has {len(description)} characters, not {names.MAX_DESCRIPTION}",
            )
        return Skill(
            name=required["id"] or folder,
            title=required["name"],
            version=required["version"] or None,
            description=description,
            license=self._fields.text("license"),
            compatibility=self._fields.text("compatibility"),
            allowed_tools=self._either(_TOOLS),
            trigger_patterns=self._either(_TRIGGERS),
            metadata=self._metadata(),
            extra=self._extra(),
            has_manifest=True,
            **pack,
        )

    def _required(self, key: str) -> str:
        value = self._document.get(key)
        if isinstance(value, str) and value.strip():
            return value
        if value is None or value == "":
            self._fields.add("manifest-field-missing", key, f"{key} is missing")
        else:
            self._fields.add("manifest-type", key, f"{key} must be a text that is not blank")
        return ""

    def _check_id(self, written: str) -> None:
        if written and not names.is_id(written):
            near = names.slug(written)
            self._fields.add(
                "manifest-id",
                "id",
                f"{shown(written)} is not lower-case words joined by single hyphens",
                f"such as {near}" if near else None,
            )

    def _check_version(self, written: str) -> None:
        if written and not names.is_version(written):
            self._fields.add(
                "manifest-version", "version", f"{shown(written)} is not MAJOR.MINOR.PATCH"
            )

    def _note_ignored(self) -> None:
        for key in REGISTRY:
            if key in self._document:
                self._fields.add(
                    "manifest-registry-field", key, f"{key} is filled by the registry; not taken"
                )

    def _either(self, keys: tuple[str, str]) -> tuple[str, ...]:
        key = next((key for key in keys if key in self._document), keys[0])
        value = self._document.get(key)
        if isinstance(value, str):
            return split_tools(value) if keys is _TOOLS else (value,)
        return self._fields.texts(key)

    def _metadata(self) -> Mapping[str, Any]:
        value = self._document.get("metadata")
        if value is not None and not isinstance(value, dict):
            self._fields.add("manifest-type", "metadata", "metadata must be an object")
            return freeze({})  # type: ignore[no-any-return]
        kept = {key: item for key, item in (value or {}).items() if key not in RESERVED_METADATA}
        return freeze(kept)  # type: ignore[no-any-return]

    def _extra(self) -> Mapping[str, Any]:
        extra = {key: value for key, value in self._document.items() if key not in KNOWN}
        for key in extra:
            self._fields.add("manifest-key-unknown", key, f"nobody reads {shown(key)}")
        hidden = self._document.get(_FRONTMATTER)
        if isinstance(hidden, dict):
            extra |= {key: value for key, value in hidden.items() if key not in FRONT_MATTER}
        return freeze(extra)  # type: ignore[no-any-return]


FORMAT = Manifest()
