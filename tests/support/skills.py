"""Skills for tests: folders on disk, and any skill that may be written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from butlers.domain.json_safe import freeze
from butlers.skills.skill import PackMcpServer, ServerKind, SkillSpec

MANIFEST: dict[str, Any] = {
    "id": "social-media",
    "name": "Social Media",
    "version": "2.1.0",
    "description": "Posts to two networks.",
    "owner": "built-in",
}


def write_files(folder: Path, files: dict[str, str | bytes], *, executable: bool = False) -> Path:
    """The files below the folder; scripts are executable, as a person would make them."""
    for path, content in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        if executable or path.startswith("scripts/"):
            file.chmod(0o755)
    return folder


def write_pack(folder: Path, files: dict[str, str | bytes] | None = None, **fields: Any) -> Path:
    """A pack whose manifest says what the fields say, on top of the required ones."""
    document = {key: value for key, value in {**MANIFEST, **fields}.items() if value is not None}
    return write_files(folder, {"manifest.json": json.dumps(document), **(files or {})})


def write_skill_md(folder: Path, front: str, body: str = "\n# Use\n\nDo it.\n") -> Path:
    return write_files(folder, {"SKILL.md": f"---\n{front}---\n{body}"})


_TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=40)
_WORD = st.from_regex(r"[a-z0-9]{1,8}(-[a-z0-9]{1,8}){0,2}", fullmatch=True)
_PATH = st.builds("{}/{}.md".format, _WORD, _WORD)
_SCALAR = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT
)
_VALUE = st.recursive(
    _SCALAR, lambda inner: st.lists(inner) | st.dictionaries(_TEXT, inner), max_leaves=5
)
_TOOL = st.from_regex(r"[A-Za-z]{1,8}(\([a-z :*]{0,10}\))?", fullmatch=True)
_VERSION = st.builds("{}.{}.{}".format, *[st.integers(0, 99)] * 3)


def _several(item: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(item, max_size=3, unique=True).map(tuple)


_KNOWN = {"name", "description", "license", "compatibility", "metadata", "allowed-tools", "version"}
_OWN_METADATA = st.dictionaries(
    _TEXT.filter(lambda key: key not in ("version", "trigger_patterns", "butlers.pack")),
    _VALUE,
    max_size=3,
)
_EXTRA = st.dictionaries(
    (_TEXT | st.sampled_from(["dependencies", "id", "usedBy", "frontmatter", "scripts"])).filter(
        lambda key: key not in _KNOWN | {"trigger_patterns"}
    ),
    _VALUE,
    max_size=3,
)
_LOCAL = st.builds(
    PackMcpServer,
    name=_WORD,
    kind=st.just(ServerKind.LOCAL),
    command=_WORD,
    args=_several(_TEXT),
    extra=st.dictionaries(_WORD.map("x-{}".format), _VALUE, max_size=2).map(freeze),
)
_REMOTE = st.builds(
    PackMcpServer,
    name=_WORD,
    kind=st.just(ServerKind.REMOTE),
    url=_WORD.map("https://{}.example/".format),
)

# Any skill that `require_writable` lets through, with a version and an owner, so that it may be a pack.
writable_skills = st.builds(
    SkillSpec,
    name=_WORD.filter(lambda name: len(name) <= 64),
    description=_TEXT.map(str.strip).filter(bool),
    body=st.text(st.characters(exclude_categories=("Cs",)), max_size=200),
    version=_VERSION,
    title=st.just("") | _TEXT.filter(lambda text: text.strip() != ""),
    owner=_WORD,
    license=st.none() | _TEXT,
    compatibility=st.none() | _TEXT,
    allowed_tools=_several(_TOOL),
    trigger_patterns=_several(_TEXT),
    context=_several(_PATH),
    scripts=_several(_PATH),
    env_vars=_several(st.from_regex(r"[A-Z_]{1,12}", fullmatch=True)),
    mcp_servers=st.lists(_LOCAL | _REMOTE, max_size=2).map(tuple),
    dependencies=_several(st.builds("{}@{}".format, _WORD, _VERSION) | _WORD),
    node_version=st.none() | st.just(">=20.0.0"),
    system_packages=_several(_WORD),
    metadata=_OWN_METADATA.map(freeze),
    extra=_EXTRA.map(freeze),
)
