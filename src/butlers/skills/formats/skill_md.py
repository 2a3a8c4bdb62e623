"""SKILL.md: YAML front matter, then instructions in Markdown."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from butlers.config.locate import Place
from butlers.domain.json_safe import freeze
from butlers.skills import names
from butlers.skills.findings import Findings, quoted
from butlers.skills.formats.base import (
    SURROGATE_MESSAGE,
    Reading,
    SkillFile,
    decode,
    is_space_separated,
    split_tools,
)
from butlers.skills.formats.frontmatter import Fields, Split, read_fields, split
from butlers.skills.formats.json_text import InvalidJson, parse
from butlers.skills.formats.pack_fields import KEYS, PackFields, pack_document
from butlers.skills.formats.strict import (
    FRONT_MATTER,
    PACK,
    RESERVED_METADATA,
    RUNNING_FIELDS,
    TRIGGERS,
    VERSION,
    require_writable,
)
from butlers.skills.formats.yaml_nodes import Node, Scalar, Sequence, Table, value_of
from butlers.skills.skill import SkillSpec


class SkillMd:
    file_names: tuple[str, ...] = ("SKILL.md", "skill.md", "Skill.md", "SKILL.MD")

    def read(self, source: SkillFile) -> Reading:
        findings = Findings(source.file)
        part = split(decode(source.content, findings), findings)
        if part.front is None:
            findings.add(
                "frontmatter-missing",
                "there is no front matter; the name is the folder's, the description the first paragraph",
                at=Place(1, 1),
                hint="begin with ---, name: …, description: …, ---",
            )
            fields = Fields({}, {}, frozenset({"no-front-matter"}))
        else:
            fields = read_fields(part, findings)
        reader = FieldReader(fields, part.body, source.folder_name, findings)
        skill = reader.skill()
        return Reading(skill, tuple(findings.diagnostics), fields.traits, reader.where)

    def render(self, skill: SkillSpec) -> Mapping[str, bytes]:
        require_writable(skill)
        body, fields = skill.body, dict(_frontmatter(skill))
        if not body and skill.context:
            body = generated_body(skill)
        return {"SKILL.md": f"---\n{dump_fields(fields)}---\n{body}".encode()}


def with_valid_front_matter(file: Path, content: bytes) -> bytes:
    """Return the file with its front matter as valid YAML, or unchanged without front matter."""
    part, fields, skill = _read_parts(file, content)
    if part.front is None:
        return part.body.encode()
    front: dict[str, Any] = {"name": skill.name, "description": skill.description}
    for key, node in fields.items.items():
        if key == "allowed-tools":
            front[key] = " ".join(skill.allowed_tools)
        elif key not in front:
            front[key] = _as_written(key, node)
    return f"---\n{dump_fields(front)}---\n{part.body}".encode()


def with_name_and_description_only(file: Path, content: bytes) -> bytes:
    """Return the file with all other fields removed, so that no client acts on them."""
    part, _fields, skill = _read_parts(file, content)
    front = {"name": skill.name, "description": skill.description}
    return f"---\n{dump_fields(front)}---\n{part.body}".encode()


def written_fields(file: Path, content: bytes) -> dict[str, Any]:
    """Return the front matter as JSON values, with texts unchanged; nothing without front matter."""
    _part, fields, _skill = _read_parts(file, content)
    return {key: _as_written(key, node) for key, node in fields.items.items()}


def _read_parts(file: Path, content: bytes) -> tuple[Split, Fields, SkillSpec]:
    findings = Findings(file)
    part = split(decode(content, findings), findings)
    fields = Fields({}, {}) if part.front is None else read_fields(part, findings)
    return (
        part,
        fields,
        FieldReader(fields, part.body, SkillFile(file, content).folder_name, findings).skill(),
    )


def _as_written(key: str, node: Node) -> Any:
    """Return a field's value with strings unchanged: `version: 1.10` must not become 1.1."""
    if key == "metadata" and isinstance(node, Table):
        return {name: _as_written(VERSION, item) for name, item in node.items.items()}
    if key in FRONT_MATTER and isinstance(node, Scalar) and not node.is_null:
        return node.text
    return value_of(node)


class _Dumper(yaml.SafeDumper):
    """Dumper that quotes unprintable text, which plain YAML would fold into blanks."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def dump_fields(fields: Mapping[str, Any]) -> str:
    return yaml.dump(
        _thawed(fields),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=1 << 30,
    )


def _frontmatter(skill: SkillSpec) -> dict[str, Any]:
    metadata = {key: value for key, value in skill.metadata.items() if isinstance(value, str)}
    if skill.version is not None:
        metadata[VERSION] = skill.version
    if skill.trigger_patterns:
        metadata[TRIGGERS] = json.dumps(skill.trigger_patterns, ensure_ascii=False)
    if pack := _pack(skill):
        metadata[PACK] = json.dumps(pack, ensure_ascii=False)
    front = {
        "name": skill.name,
        "description": skill.description,
        "license": skill.license,
        "compatibility": skill.compatibility,
        "allowed-tools": " ".join(skill.allowed_tools) or None,
        "metadata": metadata or None,
    }
    return {key: value for key, value in front.items() if value is not None} | {**skill.extra}


def _pack(skill: SkillSpec) -> dict[str, Any]:
    pack = pack_document(skill)
    if skill.title:
        pack["name"] = skill.title
    if not skill.body and skill.context:
        pack["body"] = GENERATED
    typed = {key: value for key, value in skill.metadata.items() if not isinstance(value, str)}
    if typed:  # the standard allows strings only
        pack["metadata"] = typed
    return pack


def _thawed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _thawed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_thawed(item) for item in value]
    return value


FORMAT = SkillMd()


GENERATED = "generated"
_PACK_KEYS = (*KEYS, "name", "body", "metadata")
_SPELLED = {"id": "name", "allowedTools": "allowed-tools", "triggerPatterns": TRIGGERS}
_PARAGRAPH_END = re.compile(r"\n[ \t]*\r?\n")


def generated_body(skill: SkillSpec) -> str:
    """Return instructions for a pack that has only context files: the list of files to read."""
    listed = "".join(f"- [{path}]({path})\n" for path in skill.context)
    return f"\n# {skill.title or skill.name}\n\nRead these files of this skill first:\n\n{listed}"


class FieldReader:
    """Converter of one file's fields into a SkillSpec."""

    def __init__(self, fields: Fields, body: str, folder: str, findings: Findings) -> None:
        self._fields, self._body, self._folder, self._findings = fields, body, folder, findings
        self._metadata = self._read_metadata()

    def skill(self) -> SkillSpec:
        pack = self._read_pack()
        generated = pack.pop("generated", False)
        name = self._name()
        skill = SkillSpec(
            name=name,
            description=self._description(),
            body=self._body,
            version=self._version(),
            license=self._text("license"),
            compatibility=self._compatibility(),
            allowed_tools=self._allowed_tools(),
            trigger_patterns=self._trigger_patterns(),
            metadata=freeze(self._metadata),
            extra=self._extra(),
            has_skill_md=True,
            **pack,
        )
        if generated and self._body == generated_body(skill):
            return skill.evolve(body="")
        if not skill.instructions:
            self._add("body-empty", "", "there is no text after the front matter")
        return skill

    def _add(
        self, code: str, key: str, message: str, hint: str | None = None, below: str | None = None
    ) -> None:
        at = self._fields.place(key, below)
        self._findings.add(code, message, at=at, entry=key[:64] or None, hint=hint)

    def _text(self, key: str) -> str | None:
        node = self._fields.items.get(key)
        if node is None or (isinstance(node, Scalar) and node.is_null):
            return None
        if isinstance(node, Scalar):
            return node.text
        self._add("field-type", key, f"{key} must be a string")
        if isinstance(node, Sequence):
            return " ".join(item.text for item in node.items if isinstance(item, Scalar)) or None
        return None

    # -- the standard's fields

    def _name(self) -> str:
        name = unicodedata.normalize("NFKC", self._text("name") or "").strip()
        folder = _without_version(unicodedata.normalize("NFKC", self._folder))
        if not name:
            if "no-front-matter" not in self._fields.traits:
                self._add("name-missing", "name", f"no name; the folder's is {quoted(folder)}")
            return folder
        if len(name) > names.MAX_NAME:
            self._add("name-too-long", "name", f"the name has {len(name)} characters, not 64")
        if not names.ID.fullmatch(name):
            near = names.slug(name)
            hint = f"such as {near}" if near else None
            self._add("name-format", "name", f"{quoted(name)} is not a usable name", hint)
        if name != folder:
            self._add(
                "name-directory",
                "name",
                f"the skill {quoted(name)} is in a folder named {quoted(folder)}",
                "some clients ignore such a skill silently: give both the same name",
            )
        return name

    def _description(self) -> str:
        description = (self._text("description") or "").strip()
        if len(description) > names.MAX_DESCRIPTION:
            self._add(
                "description-too-long",
                "description",
                f"the description has {len(description)} characters, not {names.MAX_DESCRIPTION}",
            )
        if description:
            return description
        paragraph = first_paragraph(self._body)
        if not paragraph:
            self._add("description-missing", "description", "there is no description")
        elif "no-front-matter" not in self._fields.traits:
            self._add(
                "description-derived",
                "description",
                "the first paragraph is used as the description",
            )
        return paragraph

    def _version(self) -> str | None:
        version = self._once(VERSION, self._text(VERSION), self._metadata.pop(VERSION, None))
        if version is not None and not names.is_version(version):
            near = names.lenient_version(version)
            hint = f"write {near}" if near else None
            self._add(
                "version-format", VERSION, f"{quoted(version)} is not MAJOR.MINOR.PATCH", hint
            )
        return version

    def _once(self, key: str, top: str | None, below: Any) -> str | None:
        """Return the top-level value, else the one under metadata."""
        if top is not None and below is not None and top != below:
            self._add(
                "field-twice", key, f"{key} is also under metadata; the top-level value counts"
            )
        elif below is not None and not isinstance(below, str):
            self._add("field-type", "metadata", f"{key} must be a string", below=key)
        return below if top is None and isinstance(below, str) else top

    def _compatibility(self) -> str | None:
        value = self._text("compatibility")
        if value is not None and not 0 < len(value) <= names.MAX_COMPATIBILITY:
            self._add("compatibility-length", "compatibility", "must have 1 to 500 characters")
        return value

    def _allowed_tools(self) -> tuple[str, ...]:
        key = "allowed-tools"
        node = self._fields.items.get(key)
        if isinstance(node, Sequence):
            self._add("allowed-tools-form", key, "is a list; the standard has one string")
            texts = (item.text for item in node.items if isinstance(item, Scalar))
            return tuple(tool for text in texts for tool in split_tools(text))
        written = self._text(key) or ""
        tools = split_tools(written)
        if not is_space_separated(written, tools):
            self._add("allowed-tools-form", key, "separate tools by single spaces")
        return tools

    def _trigger_patterns(self) -> tuple[str, ...]:
        below = self._metadata.pop(TRIGGERS, None)
        node = self._fields.items.get(TRIGGERS)
        if node is None:
            if isinstance(below, Mapping | bool | int | float):
                self._add("field-type", "metadata", f"{TRIGGERS} must be strings", below=TRIGGERS)
            return self._patterns(below, TRIGGERS)
        if below is not None:
            self._add("field-twice", TRIGGERS, "also under metadata; the top-level value counts")
        if isinstance(node, Table):
            self._add("field-type", TRIGGERS, "must be a list of strings")
        return self._patterns(node.text if isinstance(node, Scalar) else value_of(node))

    def _patterns(self, value: Any, below: str | None = None) -> tuple[str, ...]:
        if isinstance(value, str):
            parsed = self._json(value, below) if value.lstrip().startswith("[") else None
            value = parsed if isinstance(parsed, list) else [value] if value.strip() else []
        if not isinstance(value, list | tuple):
            return ()
        return tuple(item if isinstance(item, str) else json.dumps(item) for item in value)

    def _json(self, text: str, below: str | None) -> Any:
        """Parse a string as JSON, or return None. ``below`` is its key under metadata."""
        try:
            document = parse(text)
        except InvalidJson:
            return None
        if document.surrogates:
            key = TRIGGERS if below is None else "metadata"
            self._add("skill-half-character", key, SURROGATE_MESSAGE, below=below)
        return document.value

    def _extra(self) -> Mapping[str, Any]:
        extra = {}
        for key, node in self._fields.items.items():
            if key not in FRONT_MATTER:
                extra[key] = value_of(node)
                if key in RUNNING_FIELDS:
                    self._add("field-runs", key, f"other clients may run commands of {quoted(key)}")
                else:
                    self._add("field-unknown", key, f"the standard has no field {quoted(key)}")
        return freeze(extra)  # type: ignore[no-any-return]

    # -- metadata

    def _read_metadata(self) -> dict[str, Any]:
        node = self._fields.items.get("metadata")
        match node:
            case Table():
                return {key: self._metadata_value(key, item) for key, item in node.items.items()}
            case Scalar(text=text, plain=plain):
                if text.lstrip().startswith("{") and isinstance(
                    parsed := self._json(text, ""), dict
                ):
                    self._add(
                        "field-type", "metadata", "is JSON in a string; the standard has a map"
                    )
                    return parsed
                if not (plain and node.is_null):
                    self._add("field-type", "metadata", "must be a map of strings")
            case Sequence():
                self._add("field-type", "metadata", "must be a map of strings")
        return {}

    def _metadata_value(self, key: str, node: Node) -> Any:
        value = value_of(node)
        # The author of `version: 1.10` means a string.
        kept = node.text if isinstance(node, Scalar) and not node.is_null else value
        if not isinstance(value, str):
            taken = f"; read as {quoted(kept)}" if isinstance(kept, str) else ""
            message = f"the value of {quoted(key)} is not a string{taken}"
            self._add("metadata-type", "metadata", message, below=key)
        return kept

    def _read_pack(self) -> dict[str, Any]:
        written = self._metadata.pop(PACK, None)
        if written is None:
            return {}
        document = self._json(written, PACK) if isinstance(written, str) else None
        if not isinstance(document, dict):
            self._add("field-type", "metadata", f"{PACK} is not a JSON object", below=PACK)
        pack: dict[str, Any] = document if isinstance(document, dict) else {}
        fields = PackFields(pack, self._findings, self._pack_place, f"metadata.{PACK}.")
        for key in pack:
            if key not in _PACK_KEYS:
                fields.add("manifest-key-unknown", key, f"unknown key {quoted(key)}")
        self._metadata |= self._typed_metadata(fields)
        return {
            **fields.read(),
            "title": fields.text("name") or "",
            "generated": pack.get("body") == GENERATED,
        }

    def _typed_metadata(self, fields: PackFields) -> dict[str, Any]:
        """Return metadata values that are not strings; clients of the standard would convert them."""
        typed = fields.document.get("metadata", {})
        if not isinstance(typed, dict):
            fields.add("manifest-type", "metadata", "metadata must be an object")
            return {}
        for key in typed:
            if key in RESERVED_METADATA or key in self._metadata:
                fields.add(
                    "field-twice",
                    "metadata",
                    f"{quoted(key)} has a value elsewhere; ignored",
                )
        taken = {*RESERVED_METADATA, *self._metadata}
        return {key: value for key, value in typed.items() if key not in taken}

    def _pack_place(self, *_path: str | int) -> Place:
        """Return the place of the value that holds the pack's JSON."""
        return self._fields.place("metadata", PACK)

    def where(self, field: str, _path: str | None = None) -> Place:
        """Return the place of a manifest's field: its own, or that of the pack's JSON."""
        key = _SPELLED.get(field, field)
        return self._fields.place(key) if key in FRONT_MATTER else self._pack_place()


def _without_version(folder: str) -> str:
    """Remove the version from a registered pack's folder name, `name@version`."""
    name, _at, version = folder.partition("@")
    return name if names.is_version(version) else folder


def first_paragraph(body: str) -> str:
    """Return the first paragraph that is not a heading, on one line, cut to the standard's length."""
    for block in _PARAGRAPH_END.split(body[:20_000]):
        lines = [line.strip() for line in block.splitlines()]
        joined = " ".join(
            line for line in lines if line and not line.startswith(("#", "```", "<!--"))
        )
        if joined:
            return joined[: names.MAX_DESCRIPTION].strip()
    heading = next((line for line in body[:20_000].splitlines() if line.startswith("#")), "")
    return heading.lstrip("#").strip()[: names.MAX_DESCRIPTION]
