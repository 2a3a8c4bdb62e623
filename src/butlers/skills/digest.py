"""One hash for a whole folder. Every part is framed by its length, so no two trees share one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from butlers.domain.errors import SkillError
from butlers.skills.tree import Kind, Tree, walk

# Changes with the framing, so that a hash of another one is never mistaken for this one's.
_FRAMING = b"butlers skill tree 1\n"
_CHUNK = 1 << 20
_MARKS = {Kind.FILE: b"f", Kind.FOLDER: b"d", Kind.LINK: b"l"}


@dataclass(frozen=True, slots=True)
class Leaf:
    """One entry as it is hashed; ``content`` is the hash of a file's bytes, or a link's target."""

    path: bytes
    kind: Kind
    executable: bool
    content: bytes


def digest_folder(folder: Path) -> str:
    return digest_tree(walk(folder))


def digest_tree(tree: Tree) -> str:
    """`sha256:…` over names, kinds, executable bits and bytes. Times and owners do not count."""
    root, leaves = str(tree.root), []
    for entry in tree.entries:
        if entry.kind is Kind.OTHER:
            raise SkillError(f"{tree.root / entry.path} is neither file nor folder")
        if entry.kind is Kind.FILE:
            content = _hash_file(f"{root}/{entry.path}")
        else:
            content = os.fsencode(entry.target or "")
        leaves.append(Leaf(os.fsencode(entry.path), entry.kind, entry.executable, content))
    return digest_leaves(leaves)


def digest_leaves(leaves: Iterable[Leaf]) -> str:
    whole = hashlib.sha256(_FRAMING)
    for leaf in sorted(leaves, key=lambda leaf: leaf.path):
        whole.update(_MARKS[leaf.kind] + (b"x" if leaf.executable else b"-"))
        for part in (leaf.path, leaf.content):
            whole.update(len(part).to_bytes(8, "big") + part)
    return f"sha256:{whole.hexdigest()}"


def _hash_file(path: str) -> bytes:
    try:
        # A link that took the file's place since it was listed must not be followed.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            content = hashlib.sha256()
            while chunk := os.read(descriptor, _CHUNK):
                content.update(chunk)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise SkillError(f"{path}: {error.strerror or error}") from error
    return content.digest()
