"""CLAUDE.md as the system prompt: what is put in place, what is left alone, and what is never read."""

from __future__ import annotations

from pathlib import Path

import pytest

from butlers.sessions.system_prompt import MAX_FILE, read_system_prompt

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    directory = tmp_path / "roster" / "health"
    directory.mkdir(parents=True)
    (tmp_path / "roster" / "shared").mkdir()
    return directory


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())


@pytest.mark.scenario("S000-03")
@pytest.mark.parametrize(
    "text",
    [
        "You are the Health butler. You track daily health metrics.",
        "windows\r\nline ends\r\n",
        "\n\n  kept blank lines  \n\n",
        "\N{BYTE ORDER MARK}with a mark\n",
        "odd\u2028separators\x0cstay\n",
        "a $HOME, a ${VAR}, an @mention in a line, mail@example.org\n",
    ],
)
def test_the_prompt_is_the_file_byte_for_byte(folder: Path, text: str) -> None:
    write(folder / "CLAUDE.md", text)
    assert read_system_prompt(folder, "health") == text


@pytest.mark.scenario("S000-05")
def test_without_the_file_the_butler_is_named(folder: Path) -> None:
    assert read_system_prompt(folder, "general") == "You are the general butler."


@pytest.mark.scenario("S000-06")
@pytest.mark.parametrize("text", ["", " \n\t\n", "<!-- nothing yet -->\n<!-- two\nlines -->"])
def test_an_empty_file_and_one_of_comments_name_the_butler_too(folder: Path, text: str) -> None:
    write(folder / "CLAUDE.md", text)
    assert read_system_prompt(folder, "health") == "You are the health butler."


@pytest.mark.scenario("S000-10")
def test_notes_are_in_the_prompt_only_by_reference(folder: Path) -> None:
    write(folder / "CLAUDE.md", "You are Health. Consult AGENTS.md before a task.\n")
    write(folder / "AGENTS.md", "User prefers metric units\n")
    prompt = read_system_prompt(folder, "health")
    assert prompt == "You are Health. Consult AGENTS.md before a task.\n"


@pytest.mark.scenario("S001-48")
@pytest.mark.scenario("S001-49")
def test_references_are_followed_through_files(folder: Path) -> None:
    write(folder / "CLAUDE.md", "@AGENTS.md\n")
    write(folder / "AGENTS.md", "@../shared/AGENTS.md\n\n# Health\n")
    write(folder.parent / "shared" / "AGENTS.md", "Act through your tools.\n")
    assert read_system_prompt(folder, "health") == "Act through your tools.\n\n# Health\n"


@pytest.mark.scenario("S001-48")
@pytest.mark.scenario("S001-49")
@pytest.mark.parametrize("name", ["messenger", "general", "health", "travel"])
def test_the_shipped_butlers_delegate_and_share(name: str) -> None:
    directory = REPOSITORY / "roster" / name
    assert (directory / "CLAUDE.md").read_text().strip() == "@AGENTS.md"
    own = (directory / "AGENTS.md").read_text()
    assert own.splitlines()[0] == "@../shared/AGENTS.md"
    shared = (directory.parent / "shared" / "AGENTS.md").read_text()
    prompt = read_system_prompt(directory, name)
    assert prompt.startswith(shared.rstrip("\n"))
    assert own.split("\n", 1)[1] in prompt
    assert "\n@" not in prompt


def test_include_comments_are_expanded_within_a_line(folder: Path) -> None:
    write(folder / "CLAUDE.md", "before <!-- @include parts/tone.md --> after\n")
    write(folder / "parts" / "tone.md", "calm")
    assert read_system_prompt(folder, "health") == "before calm after\n"


def test_a_path_is_relative_to_the_file_that_names_it(folder: Path) -> None:
    write(folder / "CLAUDE.md", "@parts/one.md\n")
    write(folder / "parts" / "one.md", "one\n@two.md\n")
    write(folder / "parts" / "two.md", "two\n")
    assert read_system_prompt(folder, "health") == "one\ntwo\n"


def test_circular_reference_is_expanded_once(folder: Path) -> None:
    write(folder / "CLAUDE.md", "start\n@one.md\n")
    write(folder / "one.md", "one\n@two.md\n")
    write(folder / "two.md", "two\n@one.md\n@CLAUDE.md\n")
    assert read_system_prompt(folder, "health") == "start\none\ntwo\n@one.md\n@CLAUDE.md\n"


def test_expanded_prompt_is_bounded(folder: Path) -> None:
    """Each file names the next twice: two to the power of thirty without a limit."""
    for number in range(30):
        write(folder / f"{number}.md", f"@{number + 1}.md\n@{number + 1}.md\n" + "x" * 2_000)
    write(folder / "30.md", "end")
    write(folder / "CLAUDE.md", "@0.md\n")
    assert len(read_system_prompt(folder, "health")) < 3 * MAX_FILE


def test_the_same_file_may_stand_in_two_places(folder: Path) -> None:
    write(folder / "CLAUDE.md", "@tone.md\n@tone.md\n")
    write(folder / "tone.md", "calm\n")
    assert read_system_prompt(folder, "health") == "calm\ncalm\n"


@pytest.mark.parametrize(
    "reference",
    [
        "/etc/passwd",
        "../../outside.md",
        "../finance/AGENTS.md",
        "link.md",
        "../shared/../finance/AGENTS.md",
    ],
)
def test_nothing_outside_is_read(folder: Path, reference: str) -> None:
    write(folder.parent.parent / "outside.md", "SECRET")
    write(folder.parent / "finance" / "AGENTS.md", "SECRET")
    (folder / "link.md").symlink_to(folder.parent.parent / "outside.md")
    write(folder / "CLAUDE.md", f"a\n@{reference}\n<!-- @include {reference} -->\n")
    prompt = read_system_prompt(folder, "health")
    assert prompt == f"a\n@{reference}\n<!-- @include {reference} -->\n"


def test_unresolvable_reference_stays_as_written(folder: Path) -> None:
    (folder / "skills").mkdir()
    text = "@nowhere.md\n@skills\n@alice\n@\n"
    write(folder / "CLAUDE.md", text)
    assert read_system_prompt(folder, "health") == text


def test_references_in_a_code_block_are_not_expanded(folder: Path) -> None:
    text = "```\n@AGENTS.md\n```\n~~~~\n```\n@AGENTS.md\n~~~~\n"
    write(folder / "CLAUDE.md", text + "@AGENTS.md\n")
    write(folder / "AGENTS.md", "notes\n")
    assert read_system_prompt(folder, "health") == text + "notes\n"


def test_undecodable_bytes_do_not_stop_a_session(folder: Path) -> None:
    (folder / "CLAUDE.md").write_bytes(b"You are \xff\xfe Health")
    assert read_system_prompt(folder, "health").startswith("You are ")


@pytest.mark.scenario("S001-46")
def test_module_context_follows_after_a_blank_line(folder: Path) -> None:
    write(folder / "CLAUDE.md", "You are Health.")
    (folder / "MANIFESTO.md").write_text("never in a prompt")
    assert read_system_prompt(folder, "health") == "You are Health."
    assert read_system_prompt(folder, "health", "# Memory\n- likes tea") == (
        "You are Health.\n\n# Memory\n- likes tea"
    )


def test_notes_are_not_expanded(folder: Path) -> None:
    """A session wrote it: a line that names a file would bring that file to every session after it."""
    noted = "# Notes to self\r\n@butler.toml\n<!-- @include butler.toml -->\n```\n@butler.toml\n"
    write(folder / "butler.toml", "PERIWINKLE")
    write(folder.parent / "shared" / "AGENTS.md", "All of us.\n")
    write(folder / "AGENTS.md", f"@../shared/AGENTS.md\n{noted}")
    write(folder / "CLAUDE.md", "@AGENTS.md\nThat was it: <!-- @include butler.toml -->\n")
    prompt = read_system_prompt(folder, "health")
    assert prompt == f"All of us.\n{noted}That was it: PERIWINKLE\n"


def test_notes_line_counts_only_in_the_notes_file(folder: Path) -> None:
    write(folder / "AGENTS.md", "likes tea\n")
    write(folder / "CLAUDE.md", "# Notes to self\n@AGENTS.md\n")
    assert read_system_prompt(folder, "health") == "# Notes to self\nlikes tea\n"
