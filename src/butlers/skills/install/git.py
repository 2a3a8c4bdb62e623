"""Fetch skills from git at one commit: given by its full hash, or the one of the default branch.

Nothing is checked out: the files are listed, checked and written by this module, so that hooks, filters
and submodules of an untrusted repository have no effect.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit, urlunsplit

from butlers.config.settings import Settings
from butlers.domain.errors import (
    InvalidArguments,
    SkillFetchFailed,
    SkillPathRefused,
    SkillTooLarge,
)
from butlers.domain.redaction import redactor
from butlers.skills.names import inner_path, slug
from butlers.skills.tree import MAX_BYTES, MAX_DEPTH, MAX_FILES, translate_os_errors

PREFIX = "git+"
MAX_FETCH = 100 * 1024 * 1024
_FETCH_S = 120
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SCHEMES = ("https", "ssh", "file")
_ADDRESSES = ("https://", "ssh://")
_SUBDIRECTORY = "subdirectory="
_DEFAULT_BRANCH = "HEAD"
_COLLECTION_LISTING = 64 * 1024 * 1024
_LISTING = 1024 * 1024
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "credential.helper=",
    "transfer.fsckObjects=true",
    "fetch.unpackLimit=1",  # keep one pack file, whose size is limited
    "protocol.allow=never",
    *(f"protocol.{scheme}.allow=always" for scheme in _SCHEMES),
)
# The person's network and ssh settings. Nothing else of the environment is passed on.
_PASSED_ON = (
    "PATH", "SSH_AUTH_SOCK", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY",
    "all_proxy", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GitSource:
    """``commit`` is empty for the newest commit of the default branch; ``folder`` is the skill's path in
    the repository, empty for its root."""

    url: str
    commit: str = ""
    folder: str = ""

    @property
    def name(self) -> str:
        path = PurePosixPath(self.folder or urlsplit(self.url).path)
        return slug(path.name.removesuffix(".git")) or "skill"

    @property
    def origin(self) -> str:
        """Repository and folder, without the commit and without credentials."""
        scheme, host, path = urlsplit(self.url)[:3]
        address = urlunsplit((scheme, host.rpartition("@")[2], path, "", ""))
        return f"{PREFIX}{address}{f'#{_SUBDIRECTORY}{self.folder}' if self.folder else ''}"


def git_source(written: str, commit: str | None = None) -> GitSource | None:
    """Parse ``git+https://host/repository@COMMIT#subdirectory=folder``. Return None for other text."""
    if not written.startswith((PREFIX, *_ADDRESSES)) and commit is None:
        return None
    address, _hash, fragment = written.removeprefix(PREFIX).partition("#")
    before, at, after = address.rpartition("@")
    if at and "/" not in after and ":" not in after:
        address, named = before, after
        commit = commit or named
    if commit is not None and _COMMIT.fullmatch(commit) is None:
        raise InvalidArguments(
            f"{commit!r} is not a full commit hash",
            hint="give all 40 digits, since a branch or tag can move, or none for the newest commit",
        )
    scheme, host, path = urlsplit(address)[:3]
    if scheme not in _SCHEMES or not path.strip("/") or (scheme != "file" and not host):
        raise InvalidArguments(
            f"{redactor.scrub(address)!r} is not a repository address",
            hint=f"use {PREFIX}https://host/repository@COMMIT; ssh:// and file:// work too",
        )
    return GitSource(address, commit or "", _folder(fragment))


def _folder(fragment: str) -> str:
    if not fragment:
        return ""
    folder = inner_path(fragment.removeprefix(_SUBDIRECTORY))
    if not fragment.startswith(_SUBDIRECTORY) or folder is None:
        raise InvalidArguments(
            f"{fragment!r} does not name a folder in the repository",
            hint=f"use #{_SUBDIRECTORY}FOLDER, such as #{_SUBDIRECTORY}skills/pdf",
        )
    return folder


@dataclass(frozen=True, slots=True)
class _Blob:
    mode: str
    name: str
    path: str


@dataclass(frozen=True, slots=True)
class GitRepository:
    """A repository of which one commit was fetched."""

    git: _Git
    source: GitSource
    commit: str

    def files(self) -> Iterator[str]:
        """Yield the paths of all files below the source's folder, relative to it."""
        below = f"{self.source.folder}/" if self.source.folder else ""
        words = ("ls-tree", "-r", "-z", "--name-only", "--full-tree", self.commit)
        listed = self.git.read(*words, *filter(None, [below]), limit=_COLLECTION_LISTING)
        for path in listed.split(b"\0")[:-1]:
            yield os.fsdecode(path).removeprefix(below)

    def read_file(self, path: str) -> bytes | None:
        inside = "/".join(part for part in (self.source.folder, path) if part)
        return self.git.read("cat-file", "blob", f"{self.commit}:{inside}")

    def write(self, path: str, around: Path) -> Path:
        """Write one folder of the source below ``around`` and return it."""
        folder = "/".join(part for part in (self.source.folder, path) if part)
        source = replace(self.source, commit=self.commit, folder=folder)
        target = around / source.name
        with translate_os_errors(around):
            target.mkdir(parents=True)
            _write(self.git, _list(self.git, source), target)
        return target


def open_repository(
    source: GitSource, scratch: Path, environ: Mapping[str, str] | None = None
) -> GitRepository:
    """Fetch the commit of the source, or that of the default branch, below ``scratch``."""
    place = scratch / "repository"
    with translate_os_errors(scratch):
        place.mkdir()
    git = _Git(place, Settings.from_environ().environ if environ is None else environ)
    return GitRepository(git, source, _fetch_commit(git, source))


def fetch(source: GitSource, scratch: Path, environ: Mapping[str, str] | None = None) -> Path:
    """Fetch the skill below ``scratch`` and return its folder."""
    return open_repository(source, scratch, environ).write("", scratch / "skill")


def _fetch_commit(git: _Git, source: GitSource) -> str:
    git.run("init", "--quiet", "--bare", "--template=", ".")
    git.run(
        *("fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--no-auto-gc"),
        *("--", source.url, source.commit or _DEFAULT_BRANCH),
    )
    named = source.commit or "FETCH_HEAD"
    found = git.run("rev-parse", "--verify", f"{named}^{{commit}}").decode().strip()
    if source.commit and found != source.commit:
        raise SkillFetchFailed(f"{source.commit} is not a commit but points to {found}")
    return found


def _list(git: _Git, source: GitSource) -> list[_Blob]:
    """List every file of the folder. The output is limited: a malicious tree can expand endlessly."""
    below = f"{source.folder}/" if source.folder else ""
    listed = git.read(
        "ls-tree", "-r", "-l", "-z", "--full-tree", source.commit, *filter(None, [below])
    )
    total, found = 0, []
    for line in listed.split(b"\0")[:-1]:
        facts, path = line.split(b"\t", 1)
        mode, kind, name, size = facts.decode().split()
        inner = inner_path(os.fsdecode(path).removeprefix(below))
        if inner is None or len(PurePosixPath(inner).parts) > MAX_DEPTH:
            raise SkillPathRefused(
                f"the repository has a file with the path {path[:80]!r}, which is not allowed"
            )
        if kind != "blob":
            raise SkillPathRefused(
                f"{inner} is a submodule; submodules are not fetched",
                hint=f"name the skill's own folder: #{_SUBDIRECTORY}FOLDER",
            )
        total += int(size)
        found.append(_Blob(mode, name, inner))
    if len(found) > MAX_FILES or total > MAX_BYTES:
        raise _too_large()
    if not found:
        raise SkillFetchFailed(f"the commit has no files in /{source.folder}")
    return found


def _write(git: _Git, blobs: list[_Blob], target: Path) -> None:
    contents = git.run(
        "cat-file", "--batch", stdin="".join(f"{blob.name}\n" for blob in blobs).encode()
    )
    at, links = 0, []
    for blob in blobs:
        end = contents.index(b"\n", at)
        size = int(contents[at:end].split()[2])
        content = contents[end + 1 : end + 1 + size]
        at = end + size + 2
        file = target / blob.path
        file.parent.mkdir(parents=True, exist_ok=True)
        if blob.mode == "120000":
            links.append((file, content))
        else:
            with file.open("xb") as writing:
                writing.write(content)
            file.chmod(0o755 if blob.mode == "100755" else 0o644)
    for file, content in links:  # last, so that no file is written through a link
        os.symlink(os.fsdecode(content), file)


@dataclass(frozen=True, slots=True)
class _Git:
    repository: Path
    environ: Mapping[str, str]

    def run(self, *words: str, stdin: bytes = b"") -> bytes:
        try:
            ended = subprocess.run(
                self._command(words),
                input=stdin,
                capture_output=True,
                timeout=_FETCH_S,
                cwd=self.repository,
                env=self._environment(),
                preexec_fn=_limit,
            )
        except FileNotFoundError as error:
            raise SkillFetchFailed("git is not installed", hint="install git") from error
        except subprocess.TimeoutExpired as error:
            raise SkillFetchFailed(f"git {words[0]} took more than {_FETCH_S} s") from error
        if ended.returncode != 0:
            raise self._failed(words[0], ended.stderr)
        return ended.stdout

    def read(self, *words: str, limit: int = _LISTING) -> bytes:
        """Run git and return its output. Raise SkillTooLarge if it is longer than the limit."""
        with subprocess.Popen(
            self._command(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self.repository,
            env=self._environment(),
        ) as process:
            assert process.stdout is not None
            output = process.stdout.read(limit + 1)
            process.kill()
        if len(output) > limit:
            raise _too_large()
        return output

    def _command(self, words: tuple[str, ...]) -> list[str]:
        return ["git", *(word for setting in _SETTINGS for word in ("-c", setting)), *words]

    def _environment(self) -> dict[str, str]:
        passed = {name: self.environ[name] for name in _PASSED_ON if name in self.environ}
        return {
            **passed,
            "HOME": str(self.repository),
            "LANG": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "true",
            "GIT_SSH_COMMAND": "ssh -o BatchMode=yes",
            "GIT_NO_REPLACE_OBJECTS": "1",
        }

    def _failed(self, what: str, stderr: bytes) -> SkillFetchFailed:
        lines = redactor.scrub(stderr.decode("utf-8", "replace")).strip().splitlines()
        return SkillFetchFailed(
            f"git {what}: {lines[-1] if lines else 'failed without an error message'}"
        )


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FETCH, MAX_FETCH))


def _too_large() -> SkillTooLarge:
    return SkillTooLarge(
        f"the folder has more than {MAX_FILES} files or {MAX_BYTES // (1024 * 1024)} MB",
        hint=f"name the skill's own folder: #{_SUBDIRECTORY}FOLDER",
    )
