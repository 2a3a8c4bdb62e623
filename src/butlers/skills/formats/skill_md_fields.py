"""The fields of a SKILL.md on their way into a Skill: each one read leniently, each doubt told."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from butlers.config.frozen import freeze
from butlers.config.locate import Place
from butlers.skills import names
from butlers.skills.findings import Findings, shown
from butlers.skills.formats.allowed_tools import is_standard, split_tools
from butlers.skills.formats.frontmatter import Fields
from butlers.skills.formats.json_text import NotJson, parse
from butlers.skills.formats.pack_fields import KEYS, PackFields
from butlers.skills.formats.text import HALF_MESSAGE
from butlers.skills.formats.yaml_nodes import Node, Scalar, Sequence, Table, value_of
from butlers.skills.skill import Skill
from butlers.skills.strict import FRONT_MATTER, PACK, RESERVED_METADATA, TRIGGERS, VERSION

GENERATED = "generated"
_PACK_KEYS = (*KEYS, "name", "body", "metadata")
_SPELLED = {"id": "name", "allowedTools": "allowed-tools", "triggerPatterns": TRIGGERS}
_PARAGRAPH_END = re.compile(r"\n[ \t]*\r?\n")


def generated_body(skill: Skill) -> str:
    """Instructions for a pack that has only context files: which of them to read."""
    listed = "".join(f"- [{path}]({path})\n" for path in skill.context)
    return f"\n# {skill.title or skill.name}\n\nRead these files of this skill first:\n\n{listed}"


class FieldReader:
    """One file's fields on their way into a Skill."""

    def __init__(self, fields: Fields, body: str, folder: str, findings: Findings) -> None:
        self._fields, self._body, self._folder, self._findings = fields, body, folder, findings
        self._metadata = self._read_metadata()

    def skill(self) -> Skill:
        pack = self._read_pack()
        generated = pack.pop("generated", False)
        name = self._name()
        skill = Skill(
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
            self._add("body-empty", "", "there is nothing after the front matter")
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
        self._add("field-type", key, f"{key} must be a text")
        if isinstance(node, Sequence):
            return " ".join(item.text for item in node.items if isinstance(item, Scalar)) or None
        return None

    # -- the standard's fields

    def _name(self) -> str:
        name = unicodedata.normalize("NFKC", self._text("name") or "").strip()
        folder = _without_version(unicodedata.normalize("NFKC", self._folder))
        if not name:
            if "no-front-matter" not in self._fields.traits:
                self._add("name-missing", "name", f"no name; the folder's is {shown(folder)}")
            return folder
        if len(name) > names.MAX_NAME:
            self._add("name-too-long", "name", f"the name has {len(name)} characters, not 64")
        if not names.ID.fullmatch(name):
            near = names.slug(name)
            hint = f"such as {near}" if near else None
            self._add("name-format", "name", f"{shown(name)} is not a usable name", hint)
        if name != folder:
            self._add(
                "name-directory",
                "name",
                f"the skill {shown(name)} lies in a folder {shown(folder)}",
                "some clients drop such a skill without a word: give both the same name",
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
            self._add("description-missing", "description", "nothing says what the skill is for")
        elif "no-front-matter" not in self._fields.traits:
            self._add("description-derived", "description", "the first paragraph serves as it")
        return paragraph

    def _version(self) -> str | None:
        version = self._once(VERSION, self._text(VERSION), self._metadata.pop(VERSION, None))
        if version is not None and not names.is_version(version):
            self._add("version-format", VERSION, f"{shown(version)} is not MAJOR.MINOR.PATCH")
        return version

    def _once(self, key: str, top: str | None, below: Any) -> str | None:
        """The value at the top, else the one under metadata."""
        if top is not None and below is not None and top != below:
            self._add(
                "field-twice", key, f"{key} is also under metadata; the one at the top counts"
            )
        elif below is not None and not isinstance(below, str):
            self._add("field-type", "metadata", f"{key} must be a text", below=key)
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
            self._add("allowed-tools-form", key, "a list; the standard has one text")
            texts = (item.text for item in node.items if isinstance(item, Scalar))
            return tuple(tool for text in texts for tool in split_tools(text))
        written = self._text(key) or ""
        tools = split_tools(written)
        if not is_standard(written, tools):
            self._add("allowed-tools-form", key, "tools are set apart by single spaces")
        return tools

    def _trigger_patterns(self) -> tuple[str, ...]:
        below = self._metadata.pop(TRIGGERS, None)
        node = self._fields.items.get(TRIGGERS)
        if node is None:
            if isinstance(below, Mapping | bool | int | float):
                self._add("field-type", "metadata", f"{TRIGGERS} must be texts", below=TRIGGERS)
            return self._patterns(below, TRIGGERS)
        if below is not None:
            self._add("field-twice", TRIGGERS, "also under metadata; the one at the top counts")
        if isinstance(node, Table):
            self._add("field-type", TRIGGERS, "must be a list of texts")
        return self._patterns(node.text if isinstance(node, Scalar) else value_of(node))

    def _patterns(self, value: Any, below: str | None = None) -> tuple[str, ...]:
        if isinstance(value, str):
            said = self._json(value, below) if value.lstrip().startswith("[") else None
            value = said if isinstance(said, list) else [value] if value.strip() else []
        if not isinstance(value, list | tuple):
            return ()
        return tuple(item if isinstance(item, str) else json.dumps(item) for item in value)

    def _json(self, text: str, below: str | None) -> Any:
        """What a text holds as JSON; None without any. ``below`` is its key under metadata."""
        try:
            document = parse(text)
        except NotJson:
            return None
        if document.halves:
            key = TRIGGERS if below is None else "metadata"
            self._add("skill-half-character", key, HALF_MESSAGE, below=below)
        return document.value

    def _extra(self) -> Mapping[str, Any]:
        extra = {}
        for key, node in self._fields.items.items():
            if key not in FRONT_MATTER:
                extra[key] = value_of(node)
                self._add("field-unknown", key, f"the standard has no field {shown(key)}")
        return freeze(extra)  # type: ignore[no-any-return]

    # -- metadata

    def _read_metadata(self) -> dict[str, Any]:
        node = self._fields.items.get("metadata")
        match node:
            case Table():
                return {key: self._metadata_value(key, item) for key, item in node.items.items()}
            case Scalar(text=text, plain=plain):
                if text.lstrip().startswith("{") and isinstance(said := self._json(text, ""), dict):
                    self._add("field-type", "metadata", "JSON in a text; the standard has a map")
                    return said
                if not (plain and node.is_null):
                    self._add("field-type", "metadata", "must be a map of texts")
            case Sequence():
                self._add("field-type", "metadata", "must be a map of texts")
        return {}

    def _metadata_value(self, key: str, node: Node) -> Any:
        value = value_of(node)
        # `version: 1.10` is a text to whoever wrote it.
        kept = node.text if isinstance(node, Scalar) and not node.is_null else value
        if not isinstance(value, str):
            taken = f"; taken as {shown(kept)}" if isinstance(kept, str) else ""
            message = f"the value of {shown(key)} is not a text{taken}"
            self._add("metadata-type", "metadata", message, below=key)
        return kept

    def _read_pack(self) -> dict[str, Any]:
        written = self._metadata.pop(PACK, None)
        if written is None:
            return {}
        document = self._json(written, PACK) if isinstance(written, str) else None
        if not isinstance(document, dict):
            self._add("field-type", "metadata", f"{PACK} is not a JSON object", below=PACK)
        said: dict[str, Any] = document if isinstance(document, dict) else {}
        fields = PackFields(said, self._findings, self._pack_place, f"metadata.{PACK}.")
        for key in said:
            if key not in _PACK_KEYS:
                fields.add("manifest-key-unknown", key, f"nobody reads {shown(key)}")
        self._metadata |= self._typed_metadata(fields)
        return {
            **fields.read(),
            "title": fields.text("name") or "",
            "generated": said.get("body") == GENERATED,
        }

    def _typed_metadata(self, fields: PackFields) -> dict[str, Any]:
        """Values that are no texts: a client of the standard would make them such."""
        typed = fields.document.get("metadata", {})
        if not isinstance(typed, dict):
            fields.add("manifest-type", "metadata", "metadata must be an object")
            return {}
        for key in typed:
            if key in RESERVED_METADATA or key in self._metadata:
                fields.add("field-twice", "metadata", f"{shown(key)} stands elsewhere; not taken")
        taken = {*RESERVED_METADATA, *self._metadata}
        return {key: value for key, value in typed.items() if key not in taken}

    def _pack_place(self, *_path: str | int) -> Place:
        """Everything in the pack's JSON stands in one value."""
        return self._fields.place("metadata", PACK)

    def where(self, field: str, _path: str | None = None) -> Place:
        """``field`` is a manifest's; what the standard has no place for stands in the pack's JSON."""
        key = _SPELLED.get(field, field)
        return self._fields.place(key) if key in FRONT_MATTER else self._pack_place()


def _without_version(folder: str) -> str:
    """A registered pack lies in `name@version`."""
    name, _at, version = folder.partition("@")
    return name if names.is_version(version) else folder


def first_paragraph(body: str) -> str:
    """The first text that is not a heading, on one line, within the standard's length."""
    for block in _PARAGRAPH_END.split(body[:20_000]):
        lines = [line.strip() for line in block.splitlines()]
        said = " ".join(
            line for line in lines if line and not line.startswith(("#", "```", "<!--"))
        )
        if said:
            return said[: names.MAX_DESCRIPTION].strip()
    heading = next((line for line in body[:20_000].splitlines() if line.startswith("#")), "")
    return heading.lstrip("#").strip()[: names.MAX_DESCRIPTION]
