"""SKILL.md: front matter of the standard, then instructions; free-form Markdown is welcome too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from butlers.config.locate import Place
from butlers.skills.findings import Findings
from butlers.skills.formats.base import Reading, Source
from butlers.skills.formats.frontmatter import Fields, Split, read_fields, split
from butlers.skills.formats.pack_fields import pack_document
from butlers.skills.formats.skill_md_fields import GENERATED, FieldReader, generated_body
from butlers.skills.formats.text import decode
from butlers.skills.formats.yaml_nodes import Node, Scalar, Table, value_of
from butlers.skills.skill import Skill
from butlers.skills.strict import FRONT_MATTER, PACK, TRIGGERS, VERSION, require_writable


class SkillMd:
    file_names: tuple[str, ...] = ("SKILL.md", "skill.md", "Skill.md", "SKILL.MD")

    def read(self, source: Source) -> Reading:
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

    def render(self, skill: Skill) -> Mapping[str, bytes]:
        require_writable(skill)
        body, fields = skill.body, dict(_frontmatter(skill))
        if not body and skill.context:
            body = generated_body(skill)
        return {"SKILL.md": f"---\n{dump_fields(fields)}---\n{body}".encode()}


def rewritten(file: Path, content: bytes) -> bytes:
    """The same file with its front matter as valid YAML; a file without any keeps having none."""
    part, fields, skill = _understood(file, content)
    if part.front is None:
        return part.body.encode()
    said: dict[str, Any] = {"name": skill.name, "description": skill.description}
    for key, node in fields.items.items():
        if key == "allowed-tools":
            said[key] = " ".join(skill.allowed_tools)
        elif key not in said:
            said[key] = _as_written(key, node)
    return f"---\n{dump_fields(said)}---\n{part.body}".encode()


def bare(file: Path, content: bytes) -> bytes:
    """The same text under a name and a description alone: no client finds anything else to act on."""
    part, _fields, skill = _understood(file, content)
    said = {"name": skill.name, "description": skill.description}
    return f"---\n{dump_fields(said)}---\n{part.body}".encode()


def _understood(file: Path, content: bytes) -> tuple[Split, Fields, Skill]:
    findings = Findings(file)
    part = split(decode(content, findings), findings)
    fields = Fields({}, {}) if part.front is None else read_fields(part, findings)
    return (
        part,
        fields,
        FieldReader(fields, part.body, Source(file, content).folder_name, findings).skill(),
    )


def _as_written(key: str, node: Node) -> Any:
    """A field's value, with texts as texts: `version: 1.10` must not become 1.1."""
    if key == "metadata" and isinstance(node, Table):
        return {name: _as_written(VERSION, item) for name, item in node.items.items()}
    if key in FRONT_MATTER and isinstance(node, Scalar) and not node.is_null:
        return node.text
    return value_of(node)


class _Dumper(yaml.SafeDumper):
    """Quotes what is not printable: plain YAML would fold some of it into blanks."""


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


def _frontmatter(skill: Skill) -> dict[str, Any]:
    metadata = {key: value for key, value in skill.metadata.items() if isinstance(value, str)}
    if skill.version is not None:
        metadata[VERSION] = skill.version
    if skill.trigger_patterns:
        metadata[TRIGGERS] = json.dumps(skill.trigger_patterns, ensure_ascii=False)
    if pack := _pack(skill):
        metadata[PACK] = json.dumps(pack, ensure_ascii=False)
    said = {
        "name": skill.name,
        "description": skill.description,
        "license": skill.license,
        "compatibility": skill.compatibility,
        "allowed-tools": " ".join(skill.allowed_tools) or None,
        "metadata": metadata or None,
    }
    return {key: value for key, value in said.items() if value is not None} | {**skill.extra}


def _pack(skill: Skill) -> dict[str, Any]:
    pack = pack_document(skill)
    if skill.title:
        pack["name"] = skill.title
    if not skill.body and skill.context:
        pack["body"] = GENERATED
    typed = {key: value for key, value in skill.metadata.items() if not isinstance(value, str)}
    if typed:  # the standard has texts only, and a number there comes back as one
        pack["metadata"] = typed
    return pack


def _thawed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _thawed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_thawed(item) for item in value]
    return value


FORMAT = SkillMd()
