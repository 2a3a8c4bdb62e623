"""Hash of a folder: equal for equal trees only."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from butlers.domain.errors import SkillError
from butlers.skills.tree import EntryKind, Leaf, digest_folder, digest_leaves
from support.skills import write_files

_leaf = st.builds(
    Leaf,
    path=st.binary(min_size=1, max_size=4),
    kind=st.sampled_from([EntryKind.FILE, EntryKind.FOLDER, EntryKind.LINK]),
    executable=st.booleans(),
    content=st.binary(max_size=4),
)
trees = st.lists(_leaf, max_size=4, unique_by=lambda leaf: leaf.path).map(frozenset)


def _file(path: bytes, content: bytes) -> Leaf:
    return Leaf(path, EntryKind.FILE, False, content)


@settings(max_examples=500)
@given(one=trees, other=trees)
# Path and content run together, and one file against two: what an unframed hash confuses.
@example(one=frozenset({_file(b"ab", b"c")}), other=frozenset({_file(b"a", b"bc")}))
@example(
    one=frozenset({_file(b"a", b"b"), _file(b"c", b"d")}), other=frozenset({_file(b"a", b"bcd")})
)
def test_two_trees_share_a_hash_only_if_they_are_equal(
    one: frozenset[Leaf], other: frozenset[Leaf]
) -> None:
    assert (digest_leaves(one) == digest_leaves(other)) == (one == other)


def test_hash_ignores_times_and_locations_and_covers_every_byte(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "a", {"SKILL.md": "x", "scripts/run.sh": "#!/bin/sh\n"})
    first = digest_folder(folder)
    copy = Path(shutil.copytree(folder, tmp_path / "b"))
    os.utime(copy / "SKILL.md", (1, 1))
    assert digest_folder(copy) == first
    seen = {first}

    def now() -> str:
        digest = digest_folder(copy)
        assert digest not in seen
        seen.add(digest)
        return digest

    (copy / "SKILL.md").write_text("y")
    now()
    (copy / "scripts/run.sh").chmod(0o644)
    now()
    (copy / "empty").mkdir()
    now()
    (copy / "link").symlink_to("SKILL.md")
    now()
    (copy / "SKILL.md").rename(copy / "skill.md")
    assert now().startswith("sha256:")


def test_special_file_cannot_be_hashed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SkillError):
        digest_folder(tmp_path)
