"""Skills from git: one commit by its full hash, without effects of the repository."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from butlers.domain.errors import (
    ButlersError,
    InvalidArguments,
    SkillFetchFailed,
    SkillPathRefused,
    SkillTooLarge,
)
from butlers.skills.install.git import GitSource, fetch, git_source
from butlers.skills.install.install import InstallOffer, RegistryInstaller
from butlers.skills.install.source import open_source
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.tree import digest_folder
from support.skills import write_files, write_pack, write_skill_md

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass(frozen=True)
class Repository:
    """A bare repository, and a checkout that is pushed to it."""

    root: Path

    def git(self, *words: str, where: Path | None = None, stdin: str = "") -> str:
        settings = ("user.name=a", "user.email=a@example.com", "core.autocrlf=false")
        return subprocess.run(
            ["git", *(word for setting in settings for word in ("-c", setting)), *words],
            cwd=where or self.checkout,
            input=stdin,
            text=True,
            capture_output=True,
            check=True,
            env={"PATH": os.environ["PATH"], "HOME": str(self.root), "GIT_CONFIG_NOSYSTEM": "1"},
        ).stdout.strip()

    @property
    def checkout(self) -> Path:
        return self.root / "checkout"

    @property
    def url(self) -> str:
        return f"file://{self.root}/social-media.git"

    def commit(self) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message=x")
        self.git("push", "--quiet", self.url, "HEAD:main", "--force")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path)
    made.checkout.mkdir()
    made.git(
        "init", "--quiet", "--bare", "--initial-branch=main", "social-media.git", where=tmp_path
    )
    made.git("init", "--quiet")
    write_pack(made.checkout, {"scripts/a.sh": "echo\n"}, owner="me", scripts=["scripts/a.sh"])
    return made


def scratch(tmp_path: Path, name: str = "scratch") -> Path:
    folder = tmp_path / name
    folder.mkdir()
    return folder


def test_a_skill_is_installed_from_a_commit_and_stays_there(
    repository: Repository, tmp_path: Path
) -> None:
    first = repository.commit()
    write_pack(repository.checkout, version="9.0.0", owner="me")
    repository.commit()
    source = git_source(f"git+{repository.url}@{first}")
    assert source == GitSource(repository.url, first)
    installer = RegistryInstaller(SkillRegistry(tmp_path / "home"), "person")
    installed = installer.install(source, lambda offer: True)
    assert (installed.id, installed.versions) == ("social-media", ("2.1.0",))
    place = installer.registry.path("social-media", "2.1.0")
    assert (place / "scripts/a.sh").stat().st_mode & 0o111
    assert not (place / ".git").exists()


def test_only_that_commit_is_fetched(repository: Repository, tmp_path: Path) -> None:
    repository.commit()
    last = repository.commit()
    place = scratch(tmp_path)
    folder = fetch(GitSource(repository.url, last), place)
    assert folder.name == "social-media"
    assert digest_folder(folder) == digest_folder_without_git(repository.checkout, tmp_path)
    told = repository.git("rev-list", "--all", "--count", where=place / "repository")
    assert told == "0"  # no branch, no tag
    assert repository.git("rev-list", "--count", last, where=place / "repository") == "1"


def digest_folder_without_git(checkout: Path, tmp_path: Path) -> str:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", checkout, copy], check=True)
    subprocess.run(["rm", "-rf", copy / ".git"], check=True)
    return digest_folder(copy)


def test_a_folder_of_the_repository_is_named(repository: Repository, tmp_path: Path) -> None:
    write_pack(repository.checkout / "skills" / "inner", id="inner", owner="me")
    commit = repository.commit()
    source = git_source(f"git+{repository.url}@{commit}#subdirectory=skills/inner")
    assert source is not None
    folder = fetch(source, scratch(tmp_path))
    assert folder.name == "inner"
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json"]
    with pytest.raises(SkillFetchFailed, match="no files in /gone"):
        fetch(GitSource(repository.url, commit, "gone"), scratch(tmp_path, "other"))


@pytest.mark.parametrize(
    ("written", "commit"),
    [
        ("git+https://host/repository@main", None),
        ("git+https://host/repository@v1.2.0", None),
        (f"git+https://host/repository@{COMMIT[:12]}", None),
        (f"git+https://host/repository@{COMMIT.upper()}", None),
        ("https://host/repository", "main"),
    ],
)
def test_branch_or_tag_is_refused(written: str, commit: str | None) -> None:
    with pytest.raises(InvalidArguments, match="is not a full commit hash") as error:
        git_source(written, commit)
    assert "all 40 digits" in (error.value.hint or "")


@pytest.mark.parametrize(
    "address",
    [
        "http://host/repository",
        "git://host/repository",
        "ext::sh -c touch% evil",
        "--upload-pack=evil",
        "https://",
        "/a/path",
    ],
)
def test_only_https_ssh_and_file_addresses_are_accepted(address: str) -> None:
    with pytest.raises(InvalidArguments) as error:
        git_source(f"git+{address}", COMMIT)
    assert error.value.hint


def test_commit_may_be_in_the_address_or_separate() -> None:
    expected = GitSource("https://host/a/b.git", COMMIT)
    assert git_source(f"git+https://host/a/b.git@{COMMIT}") == expected
    assert git_source("https://host/a/b.git", COMMIT) == expected
    assert expected.name == "b"
    ssh = git_source(f"git+ssh://git@host/a@{COMMIT}")
    assert ssh is not None
    assert ssh.url == "ssh://git@host/a"
    assert git_source("a/folder") is None
    for fragment in ("subdirectory=../x", "subdirectory=/x", "egg=x"):
        with pytest.raises(InvalidArguments):
            git_source(f"git+https://host/a@{COMMIT}#{fragment}")


def test_address_without_commit_means_the_default_branch(
    repository: Repository, tmp_path: Path
) -> None:
    assert git_source("https://host/a/b.git") == GitSource("https://host/a/b.git")
    repository.commit()
    last = repository.commit()
    installer = RegistryInstaller(SkillRegistry(tmp_path / "home"), "person")
    offers: list[InstallOffer] = []
    installed = installer.install(GitSource(repository.url), lambda _: True, offers.append)
    assert offers[0].commit == last
    assert installed.release("2.1.0").commit == last
    assert installer.registry.get("social-media").release("2.1.0").commit == last
    assert installed.release("2.1.0").origin == f"git+{repository.url}"


def test_one_skill_of_a_marketplace_is_installed(repository: Repository, tmp_path: Path) -> None:
    shop = "plugins/shop/skills/buy"
    write_skill_md(repository.checkout / shop, "name: buy\ndescription: Buys.\n")
    plugin = '{"name": "shop", "version": "1.4.0"}'
    files = {"plugins/shop/.claude-plugin/plugin.json": plugin}
    write_files(repository.checkout, files)
    last = repository.commit()
    installer = RegistryInstaller(SkillRegistry(tmp_path / "home"), "person")
    with open_source(GitSource(repository.url)) as opened:
        found = opened.collection()
        assert [skill.path for skill in found.skills] == ["", shop]
        (buy,) = found.choose(["buy"])
        installed = installer.install_one(opened, buy, lambda _: True)
    (release,) = installed.releases.values()
    assert release.version.startswith("1.4.0+")
    assert (release.origin, release.commit) == (f"git+{repository.url}#subdirectory={shop}", last)


def test_unknown_commit_is_an_error(repository: Repository, tmp_path: Path) -> None:
    repository.commit()
    with pytest.raises(SkillFetchFailed, match="git fetch") as error:
        fetch(GitSource(repository.url, COMMIT), scratch(tmp_path))
    assert error.value.hint
    with pytest.raises(SkillFetchFailed, match="git fetch"):
        fetch(GitSource(f"file://{tmp_path}/gone", COMMIT), scratch(tmp_path, "other"))


def test_hash_of_a_tag_is_refused(repository: Repository, tmp_path: Path) -> None:
    repository.commit()
    repository.git("tag", "--annotate", "v1", "--message=x")
    repository.git("push", "--quiet", repository.url, "v1")
    tag = repository.git("rev-parse", "v1")
    with pytest.raises(SkillFetchFailed, match="is not a commit"):
        fetch(GitSource(repository.url, tag), scratch(tmp_path))


def test_hooks_filters_and_personal_settings_have_no_effect(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    home = write_files(
        tmp_path / "person",
        {".gitconfig": f'[filter "f"]\n smudge = touch {ran}\n[core]\n fsmonitor = touch {ran}\n'},
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(home))
    for hook in ("post-checkout", "reference-transaction", "post-index-change"):
        write_files(home / "hooks", {hook: f"#!/bin/sh\ntouch {ran}\n"}, executable=True)
    write_files(repository.checkout, {".gitattributes": "* filter=f text eol=crlf\n"})
    folder = fetch(GitSource(repository.url, repository.commit()), scratch(tmp_path))
    assert (folder / "scripts/a.sh").read_bytes() == b"echo\n"
    assert not ran.exists()


def test_a_submodule_is_refused_by_name(repository: Repository, tmp_path: Path) -> None:
    commit = repository.commit()
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{commit},vendored")
    repository.git("commit", "--quiet", "--message=x")
    repository.git("push", "--quiet", repository.url, "HEAD:main")
    with pytest.raises(SkillPathRefused, match="vendored is a submodule"):
        fetch(GitSource(repository.url, repository.git("rev-parse", "HEAD")), scratch(tmp_path))


def test_a_link_to_a_key_is_refused_at_installation(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "id_rsa").write_text("PRIVATE KEY")
    (repository.checkout / "example.pem").symlink_to(tmp_path / "id_rsa")
    source = GitSource(repository.url, repository.commit())
    registry = SkillRegistry(tmp_path / "home")
    with pytest.raises(ButlersError, match=r"example\.pem"):
        RegistryInstaller(registry, "person").install(source, lambda offer: True)
    assert registry.list() == ()


def test_endlessly_expanding_tree_is_refused(repository: Repository, tmp_path: Path) -> None:
    """Refuse a dozen objects that expand to ten billion files."""
    blob = repository.git("hash-object", "-w", "manifest.json")
    kind, mode, child = "blob", "100644", blob
    for _ in range(10):
        lines = "".join(f"{mode} {kind} {child}\tf{number}\n" for number in range(10))
        child = repository.git("mktree", stdin=lines)
        kind, mode = "tree", "040000"
    commit = repository.git("commit-tree", child, "-m", "x")
    repository.git("push", "--quiet", repository.url, f"{commit}:refs/heads/main")
    with pytest.raises(SkillTooLarge):
        fetch(GitSource(repository.url, commit), scratch(tmp_path))


def test_a_password_in_an_address_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(SkillFetchFailed) as error:
        fetch(GitSource("https://me:hunter22@127.0.0.1:1/x", COMMIT), scratch(tmp_path))
    assert "hunter22" not in error.value.message
