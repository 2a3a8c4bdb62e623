"""manifest.json: a pack with an id, a version and an owner."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from typing import Any

from butlers.config.locate import Place
from butlers.domain.errors import InvalidSkill
from butlers.domain.json_safe import freeze
from butlers.skills import names
from butlers.skills.findings import Findings, quoted
from butlers.skills.formats.base import SURROGATE_MESSAGE, Reading, SkillFile, decode, split_tools
from butlers.skills.formats.json_text import InvalidJson, JsonDocument, parse
from butlers.skills.formats.pack_fields import KEYS, PackFields, pack_document
from butlers.skills.formats.strict import FRONT_MATTER, RESERVED_METADATA, require_writable
from butlers.skills.skill import SkillSpec

REQUIRED = ("id", "name", "version", "description", "owner")
# Set by the registry; values in a file are ignored.
REGISTRY = ("usedBy", "registeredAt", "updatedAt")
# Optional fields of the standard, with accepted spellings.
_OPTIONAL = ("license", "compatibility", "metadata")
_TOOLS, _TRIGGERS = ("allowedTools", "allowed-tools"), ("triggerPatterns", "trigger_patterns")
# Holds keys of a SKILL.md that have another meaning in a manifest.
_FRONTMATTER = "frontmatter"
KNOWN = (*REQUIRED, *KEYS, *REGISTRY, *_OPTIONAL, *_TOOLS, *_TRIGGERS, _FRONTMATTER)


# Trait of a manifest.json that lacks the fields of a pack: many tools have a file of this name.
FOREIGN = "foreign-manifest"


class Manifest:
    file_names: tuple[str, ...] = ("manifest.json",)

    def read(self, source: SkillFile) -> Reading:
        findings = Findings(source.file)
        document = _document(decode(source.content, findings), findings)
        if document is None:
            return Reading(None, tuple(findings.diagnostics))
        reader = _Reader(document, findings)
        skill = reader.skill(source.folder_name)
        traits = frozenset() if _is_pack(document.value) else frozenset({FOREIGN})
        return Reading(skill, tuple(findings.diagnostics), traits, reader.where)

    def render(self, skill: SkillSpec) -> Mapping[str, bytes]:
        require_writable(skill)
        if skill.version is None or skill.owner is None:
            lacking = "version" if skill.version is None else "owner"
            raise InvalidSkill(
                f"the skill {skill.name!r} has no {lacking}, which a pack needs",
                hint="give it one before it becomes a pack",
            )
        extra = {key: value for key, value in skill.extra.items() if key not in KNOWN}
        hidden = {key: value for key, value in skill.extra.items() if key in KNOWN}
        document: dict[str, Any] = {
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
        kept = {key: value for key, value in document.items() if value is not None or key in extra}
        return {"manifest.json": (json.dumps(kept, indent=2, ensure_ascii=False) + "\n").encode()}


def _is_pack(document: Mapping[str, Any]) -> bool:
    """Return True if the file has an id, and another field that only packs have."""
    return "id" in document and any(key in document for key in KEYS)


def _document(text: str, findings: Findings) -> JsonDocument | None:
    try:
        document = parse(text)
    except InvalidJson as error:
        findings.add("manifest-not-json", error.message, at=error.place)
        return None
    for place in document.surrogates:
        findings.add("skill-half-character", SURROGATE_MESSAGE, at=place)
    for key, place in document.duplicates:
        findings.add(
            "manifest-duplicate-key", f"{quoted(key)} appears twice", at=place, entry=key[:64]
        )
    if isinstance(document.value, dict):
        return document
    findings.add("manifest-not-json", "a manifest is a JSON object", at=document.place())
    return None


class _Reader:
    def __init__(self, document: JsonDocument, findings: Findings) -> None:
        self._written, self._findings = document, findings
        self._document: dict[str, Any] = document.value
        self._fields = PackFields(self._document, findings, document.place)
        self._positions: dict[str, dict[str, int]] = {}  # of a list's paths, by key

    def where(self, key: str, path: str | None = None) -> Place:
        """Return the place of a field, or of the item in its list that equals ``path``."""
        position = None if path is None else self._positions_of(key).get(path)
        return self._written.place(key) if position is None else self._written.place(key, position)

    def _positions_of(self, key: str) -> dict[str, int]:
        if key not in self._positions:
            written = self._document.get(key)
            found: dict[str, int] = {}
            for position, item in enumerate(written if isinstance(written, list) else ()):
                inner = names.inner_path(item) if isinstance(item, str) else None
                if inner is not None:
                    found.setdefault(inner, position)
            self._positions[key] = found
        return self._positions[key]

    def skill(self, folder: str) -> SkillSpec:
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
        return SkillSpec(
            name=required["id"] or folder,
            title=required["name"],
            version=required["version"] or None,
            description=description,
            license=self._fields.text("license"),
            compatibility=self._fields.text("compatibility"),
            allowed_tools=self._either(_TOOLS),
            trigger_patterns=self._either(_TRIGGERS),
            metadata=freeze(self._object("metadata", RESERVED_METADATA)),
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
            self._fields.add("manifest-type", key, f"{key} must be a non-blank string")
        return ""

    def _check_id(self, written: str) -> None:
        if not written or (len(written) <= names.MAX_NAME and names.ID.fullmatch(written)):
            return
        near = names.slug(written)
        self._fields.add(
            "name-format" if names.is_id(written) else "manifest-id",
            "id",
            f"{quoted(written)} is not lower-case words joined by single hyphens",
            hint=f"such as {near}" if near else None,
        )

    def _check_version(self, written: str) -> None:
        if written and not names.is_version(written):
            near = names.lenient_version(written)
            self._fields.add(
                "version-format" if near else "manifest-version",
                "version",
                f"{quoted(written)} is not MAJOR.MINOR.PATCH",
                hint=f"write {near}" if near else None,
            )

    def _note_ignored(self) -> None:
        for key in REGISTRY:
            if key in self._document:
                message = f"{key} is set by the registry; the value is ignored"
                self._note("manifest-registry-field", message, key)

    def _note(self, code: str, message: str, *path: str) -> None:
        """Add a finding at a key, not at its value."""
        at = self._written.key_place(*path)
        self._findings.add(code, message, at=at, entry=".".join(path)[:64] or None)

    def _note_ignored_key(self, *path: str) -> None:
        message = f"{quoted(path[-1])} has a field of its own; this one is ignored"
        self._note("field-twice", message, *path)

    def _either(self, keys: tuple[str, str]) -> tuple[str, ...]:
        key, *others = [key for key in keys if key in self._document] or [keys[0]]
        for other in others:
            self._note_ignored_key(other)
        value = self._document.get(key)
        if isinstance(value, str):
            return split_tools(value) if keys is _TOOLS else (value,)
        return self._fields.texts(key)

    def _object(self, key: str, elsewhere: Container[str]) -> dict[str, Any]:
        """Return the object at ``key`` without the keys that have their own field."""
        value = self._document.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._fields.add("manifest-type", key, f"{key} must be an object")
            return {}
        for name in value:
            if name in elsewhere:
                self._note_ignored_key(key, name)
        return {name: item for name, item in value.items() if name not in elsewhere}

    def _extra(self) -> Mapping[str, Any]:
        extra = {key: value for key, value in self._document.items() if key not in KNOWN}
        for key in extra:
            self._note("manifest-key-unknown", f"unknown key {quoted(key)}", key)
        hidden = self._object(_FRONTMATTER, {*FRONT_MATTER, *extra})
        return freeze(extra | hidden)  # type: ignore[no-any-return]


FORMAT = Manifest()
