"""Loading any file gives a book and diagnostics, never an exception."""

import os
import tomllib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from butlers.config.locate import Place, locate
from butlers.domain.diagnostic import Severity
from butlers.skills.reflexes import load_reflexes

from .conftest import REALISTIC

GOOD = 'version = 1\n[[reflex]]\nname = "hi"\npattern = "hi"\nreply = "hello"\n'


def problems(book):
    return [(d.code, d.entry, d.line, d.column) for d in book.diagnostics]


def test_missing_folder_gives_an_empty_book(tmp_path):
    assert load_reflexes(tmp_path / "none") == load_reflexes(tmp_path)
    assert load_reflexes(tmp_path).reflexes == ()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("version = 1\n[[reflex]\n", ("reflex-toml", None, 2, 9)),
        ("version = ", ("reflex-toml", None, 1, 11)),
        ('version = 1\r\nx = "', ("reflex-toml", None, 2, 6)),
        (b"version = 1\nx = '\xff'", ("reflex-encoding", None, 2, 6)),
        ("x = " + "[" * 5000, ("reflex-toml", None, None, None)),
        ("x = " + "1" * 5000, ("reflex-toml", None, None, None)),
        ("a." * 50_000 + "b = 1", ("reflex-toml", None, 1, 1)),
        ("#" * (256 * 1024 + 1), ("reflex-too-large", None, None, None)),
        ("", ("reflex-version", None, None, None)),
        ("version = 2\n", ("reflex-version", None, 1, 11)),
        ("version = true\n", ("reflex-version", None, 1, 11)),
        ("version = 1\nreflex = 3\n", ("reflex-value", None, 2, 10)),
        ("version = 1\nreflex = [3]\n", ("reflex-value", "#1", 2, 10)),
        ("version = 1\n[[reflexx]]\n", ("reflex-unknown-key", None, 2, 1)),
    ],
)
def test_unusable_file_is_reported_with_its_position(skills, content, expected):
    file = skills.write(content)
    book = skills.load()
    assert book.reflexes == ()
    assert problems(book)[0] == expected
    assert book.diagnostics[0].file == file


@pytest.mark.parametrize(
    ("lines", "expected", "display"),
    [
        ("pattern = '('\nreply = 'x'", ("reflex-pattern", "a", 4, 11), "missing )"),
        ("patern = 'x'\npattern = 'x'\nreply = 'x'", ("reflex-unknown-key", "a", 4, 1), "'patern'"),
        ("pattern = 'x'", ("reflex-missing-key", "a", 2, 1), "'reply'"),
        ("pattern = 1\nreply = 'x'", ("reflex-value", "a", 4, 11), "'pattern'"),
        ("pattern = 'x'\nreply = '{who}'", ("reflex-template", "a", 5, 9), "{who}"),
        ("pattern = 'x'\nreply = '{'", ("reflex-template", "a", 5, 9), "lone"),
        ("pattern = 'x'\nreply = '{result.a}'", ("reflex-template", "a", 5, 9), "{result.a}"),
        ("pattern = 'x'\nreply = 'x'\ntool = 'a b'", ("reflex-value", "a", 6, 8), "'tool'"),
        (
            "pattern = 'x'\nreply = 'x'\nexamples = ['y']",
            ("reflex-example", "a", 6, 12),
            "'y' does not",
        ),
        ("pattern = 'x'\nreply = 'x'\nexamples = 'x'", ("reflex-value", "a", 6, 12), "'examples'"),
        (
            "pattern = '(?P<n>.+)'\nreply = 'x'\nexamples = ['z']\ngroups.n = 'number'",
            ("reflex-example", "a", 6, 12),
            "its n 'z' is not a number",
        ),
        (
            "pattern = 'x'\nreply = 'x'\n[reflex.groups]\n  n = 'number'",
            ("reflex-group", "a", 7, 7),
            "no group named 'n'",
        ),
        (
            "pattern = '(?P<n>x)'\nreply = 'x'\n[reflex.groups]\nn = 'numbr'",
            ("reflex-group", "a", 7, 5),
            "unknown type",
        ),
        (
            "pattern = '(?P<n>x)'\nreply = 'x'\ngroups.n = { typ = 'number' }",
            ("reflex-unknown-key", "a", 6, 12),
            "'typ'",
        ),
        (
            "pattern = '(?P<n>x)'\nreply = 'x'\ngroups.n = { type = 'number', default = 'x' }",
            ("reflex-group", "a", 6, 12),
            "the default is not a number",
        ),
        (
            "pattern = '(?P<n>x)'\nreply = 'x'\ngroups.n = {type='money', default_currency='E'}",
            ("reflex-group", "a", 6, 12),
            "ISO 4217",
        ),
        (
            "pattern = '(?P<n>x)'\nreply = '{n.amount}'",
            ("reflex-template", "a", 5, 9),
            "no such part",
        ),
        (
            "pattern = '(?P<result>x)'\nreply = 'x'",
            ("reflex-group", "a", 2, 1),
            "cannot be named 'result'",
        ),
        (
            "pattern = 'x'\nreply = 'x'\ntool = 't'\n[reflex.arguments]\nv = '{n}'",
            ("reflex-template", "a", 8, 5),
            "{n}",
        ),
        (
            "pattern = 'x'\nreply = 'x'\ntool = 't'\n[reflex.arguments]\nv = nan",
            ("reflex-value", "a", 8, 5),
            "JSON",
        ),
        (
            "pattern = 'x'\nreply = 'x'\narguments.v = 1",
            ("reflex-value", "a", 6, 1),
            "without a 'tool'",
        ),
    ],
)
def test_problem_is_reported_at_its_line_and_column(skills, lines, expected, display):
    skills.write(f"version = 1\n[[reflex]]\nname = 'a'\n{lines}\n")
    book = skills.load()
    assert problems(book) == [expected]
    assert display in book.diagnostics[0].message
    assert book.reflexes == ()


def test_all_problems_are_reported_at_once_and_only_that_skill_is_disabled(skills):
    skills.write(GOOD, "good")
    skills.write(
        """version = 1
color = "red"

[[reflex]]
name = "same"
pattern = '''(?P<v>[['''
reply = "{v}"

[[reflex]]
name = "same"
pattern = "x"
replay = "x"
reply = "{z}"
examples = [
    "x",
    "[[reflex]]", # not a header
]

[[reflex]]
pattern = "y"
reply = "y"
""",
        "bad",
    )
    book = skills.load()
    assert [reflex.skill for reflex in book.reflexes] == ["good"]
    assert problems(book) == [
        ("reflex-unknown-key", None, 2, 1),
        ("reflex-pattern", "same", 6, 11),
        ("reflex-unknown-key", "same", 12, 1),
        ("reflex-template", "same", 13, 9),
        ("reflex-example", "same", 14, 12),
        ("reflex-missing-key", "#3", 19, 1),
        ("reflex-duplicate", "same", 10, 8),
    ]
    assert book.diagnostics[2].hint == "did you mean 'reply'?"
    assert all(d.file == skills.folder / "bad" / "reflex.toml" for d in book.diagnostics)


def test_number_of_problems_per_file_is_limited(skills):
    skills.write("version = 1\n" + "".join(f"key{number} = 1\n" for number in range(5000)))
    codes = [diagnostic.code for diagnostic in skills.load().diagnostics]
    assert codes.count("reflex-unknown-key") == 100


def test_example_matched_by_two_reflexes_warns_at_the_second(skills):
    skills.write(GOOD, "apple")
    second = skills.write(
        GOOD.replace('"hi"\nreply', '"(?i)h."\nexamples = ["hi", "ho"]\nreply'), "pear"
    )
    book = skills.load()
    (warning,) = book.diagnostics
    assert (warning.code, warning.severity) == ("reflex-ambiguous", Severity.WARNING)
    assert (warning.file, warning.entry) == (second, "hi")
    assert "'hi' also matches apple/hi" in warning.message
    assert len(book.reflexes) == 2


def test_file_without_a_reflex_gives_a_warning(skills):
    skills.write("version = 1\n")
    assert [d.severity for d in skills.load().diagnostics] == [Severity.WARNING]


def test_symbolic_links_to_shared_skills_are_followed(skills, tmp_path):
    skills.folder.mkdir()
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "reflex.toml").write_text("\ufeff" + GOOD, encoding="utf-8")
    (skills.folder / "greet").symlink_to(tmp_path / "shared")
    (reflex,) = skills.load().reflexes
    assert reflex.skill == "greet"


def test_pipes_folders_and_broken_links_are_reported_without_blocking(skills):
    for name in ("pipe", "folder", "nowhere", "loop"):
        (skills.folder / name).mkdir(parents=True)
    os.mkfifo(skills.folder / "pipe" / "reflex.toml")
    (skills.folder / "folder" / "reflex.toml").mkdir()
    (skills.folder / "nowhere" / "reflex.toml").symlink_to("/does/not/exist")
    (skills.folder / "loop" / "reflex.toml").symlink_to("reflex.toml")
    (skills.folder / "README.md").write_text("not a skill")
    (skills.folder / ".hidden").mkdir()
    (skills.folder / ".hidden" / "reflex.toml").write_text("broken")
    book = skills.load()
    assert [(d.code, d.file.parent.name) for d in book.diagnostics] == [
        ("reflex-unreadable", name) for name in ("folder", "loop", "nowhere", "pipe")
    ]


def test_skills_folder_that_is_a_file_is_reported(tmp_path):
    (tmp_path / "skills").write_text("")
    assert problems(load_reflexes(tmp_path / "skills")) == [("reflex-unreadable", None, None, None)]


def test_places_are_found_among_strings_that_look_like_headers():
    source = 'a = """\n[[x]]\nb = 1"""\n[[x]]\n[[x]]\n "c" . d = [ # ]\n 1]\n[x.e]\nf = {g = 1}\n'
    tomllib.loads(source)
    places = locate(source)
    assert places.of(("a",)) == Place(1, 5)
    assert places.of(("x", 0)) == Place(4, 1)
    assert places.of(("x", 1, "c", "d")) == Place(6, 12)
    assert places.of_key(("x", 1, "c", "d")) == Place(6, 2)
    assert places.of(("x", 1, "e", "f", "g")) == Place(9, 5)
    assert places.of(("nothing",)) is None


_CHUNKS = st.sampled_from(
    [line + "\n" for line in REALISTIC.splitlines()]
    + ["[", "]", "'", '"""', "{", "}", "=", ".", "\n", "\r\n", "\0", "é", "nan", "groups = 1\n"]
    + [
        "pattern = '(?P<x>'\n",
        "examples = [1]\n",
        "[reflex]\n",
        "reflex = {}\n",
        "default = true\n",
    ]
    + ["[reflex.arguments.a.b]\n", "x = 0x" + "f" * 90 + "\n", "arguments = []\n", "groups.a = 1\n"]
)


def _check(skills, content):
    skills.write(content)
    book = skills.load()
    assert book.reflexes == () or not any(d.severity is Severity.ERROR for d in book.diagnostics)
    for diagnostic in book.diagnostics:
        assert str(diagnostic)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300))
def test_any_bytes_load_without_an_exception(skills, content):
    _check(skills, content)


@settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(chunks=st.lists(_CHUNKS, max_size=12), head=st.booleans())
def test_any_fragments_load_without_an_exception(skills, chunks, head):
    _check(skills, ("version = 1\n[[reflex]]\n" if head else "") + "".join(chunks))


@settings(
    deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(start=st.integers(0, len(REALISTIC)), length=st.integers(0, 40), put=st.text(max_size=5))
def test_any_change_to_a_valid_file_loads_without_an_exception(skills, start, length, put):
    changed = REALISTIC[:start] + put + REALISTIC[start + length :]
    _check(skills, changed.encode("utf-8", "surrogatepass"))
