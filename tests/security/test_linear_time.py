"""Work on outside text grows with its size, not with its square: one attack per shape of text.

Work is CPU time of this process, so that other load on the machine does not count. Each input is measured
at one size and at four times that size; the least of several runs is the work. Four times the size may cost
at most 2.5 times per doubling.
"""

from __future__ import annotations

import gc
import json
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from butlers.channels.telegram.text import FormattedText, from_markdown, split
from butlers.config.locate import locate
from butlers.domain.errors import ButlersError
from butlers.domain.json_safe import json_safe, text_safe
from butlers.domain.links import links, links_beyond, links_from
from butlers.domain.message import InboundEnvelope, parse_command
from butlers.domain.redaction import Redactor
from butlers.sessions.system_prompt import has_words
from butlers.skills import names
from butlers.skills.check.rules import check
from butlers.skills.formats import manifest, skill_md
from butlers.skills.formats.base import SkillFile, split_tools
from butlers.skills.formats.json_text import InvalidJson
from butlers.skills.formats.json_text import parse as parse_json
from butlers.skills.instructions import describe_script
from butlers.skills.reflexes.book import load_reflexes
from butlers.skills.reflexes.patterns import TemplateError, compile_trigger, parse_template
from butlers.switchboard.rules import contains
from butlers.wire.codec import decode
from support.skills import write_files, write_pack

PER_DOUBLING = 2.5
DOUBLINGS = 2
NOISE_S = 0.004  # below this, timers and caches decide
ATTEMPTS = 8
HOPELESS_S = 3.0  # not repeated
Work = Callable[[], object]


@dataclass(frozen=True)
class Attack:
    """``prepare`` writes the input of a size below a folder and returns the work on it."""

    name: str
    size: int
    prepare: Callable[[Path, int], Work]


def _text(
    name: str, size: int, work: Callable[[str], object], make: Callable[[int], str]
) -> Attack:
    def prepare(_folder: Path, scale: int) -> Work:
        text = make(scale)
        return lambda: work(text)

    return Attack(name, size, prepare)


def _skill(name: str, size: int, make: Callable[[int], str], path: str = "SKILL.md") -> Attack:
    """A file of a skill that is checked."""

    def prepare(folder: Path, scale: int) -> Work:
        root = folder / str(scale) / "a-skill"
        head = "---\nname: a-skill\ndescription: x\n---\n"
        write_files(root, {"SKILL.md": f"{head}\nDo it.\n"})
        write_files(root, {path: f"{head if path == 'SKILL.md' else ''}{make(scale)}"})
        return lambda: check(root)

    return Attack(f"check {path}: {name}", size, prepare)


def _pack(name: str, size: int, make: Callable[[int], dict[str, Any]]) -> Attack:
    def prepare(folder: Path, scale: int) -> Work:
        root = write_pack(folder / str(scale) / "social-media", **make(scale))
        return lambda: check(root)

    return Attack(f"check manifest.json: {name}", size, prepare)


def _front(name: str, size: int, make: Callable[[int], str]) -> Attack:
    def work(text: str) -> object:
        return skill_md.FORMAT.read(SkillFile(Path("a-skill/SKILL.md"), text.encode()))

    return _text(f"front matter: {name}", size, work, make)


def _json(name: str, size: int, make: Callable[[int], str]) -> Attack:
    def work(text: str) -> object:
        with suppress(InvalidJson):
            parse_json(text).key_place("a")
        return manifest.FORMAT.read(SkillFile(Path("a-skill/manifest.json"), text.encode()))

    return _text(f"JSON: {name}", size, work, make)


def _reflexes(name: str, size: int, make: Callable[[int], str]) -> Attack:
    def prepare(folder: Path, scale: int) -> Work:
        write_files(folder / str(scale) / "a-skill", {"reflex.toml": make(scale)})
        return lambda: load_reflexes(folder / str(scale))

    return Attack(f"reflexes: {name}", size, prepare)


def _template(text: str) -> object:
    with suppress(TemplateError):
        return parse_template(text).render(lambda path: "x")
    return None


def _envelope(text: str) -> object:
    document = json.loads(text)
    with suppress(ButlersError):
        envelope = decode(InboundEnvelope, document)
        envelope.check(["api"])
        return envelope.dedupe_key, envelope.content_hash, envelope.headers
    return None


def _envelope_of(payload: dict[str, Any], event: str = "1") -> str:
    return json.dumps(
        {
            "source": {"channel": "api", "provider": "api", "endpoint_identity": "a"},
            "event": {"external_event_id": event, "observed_at": "2026-01-01T00:00:00Z"},
            "sender": {"identity": "a"},
            "payload": {"normalized_text": "x", **payload},
        }
    )


def _scrub(text: str) -> object:
    redactor = Redactor()
    redactor.register("aaaa", "a secret of a person")
    return redactor.scrub(text)


def _script(suffix: str, name: str, size: int, unit: str) -> Attack:
    return _skill(name, size, lambda n: unit * n, f"scripts/run.{suffix}")


ATTACKS = [
    # -- text of a skill
    _skill("slashes", 16_000, lambda n: "/" * n),
    _skill("slashes after a pipe", 16_000, lambda n: "curl x | " + "/" * n),
    _skill("zero-width characters", 20_000, lambda n: "\u200b" * n),
    _skill("zero-width characters between letters", 20_000, lambda n: "a\u200b" * n),
    _skill("joined emoji", 10_000, lambda n: "\U0001f469\u200d\U0001f4bb" * n),
    _skill("piped downloads", 10_000, lambda n: "curl x | sh\n" * n),
    _skill("downloads without an end", 20_000, lambda n: "curl " * n),
    _skill("pipes without a shell", 20_000, lambda n: "curl |" * n),
    _skill("continued lines", 20_000, lambda n: "curl \\\n" * n),
    _skill("lines that end in a pipe", 20_000, lambda n: "curl" + "|\n" * n),
    _skill("sudo without a command", 20_000, lambda n: "curl x | " + "sudo " * n),
    _skill("open substitutions", 20_000, lambda n: "bash <( " * n + "curl"),
    _skill("quotes after a download", 20_000, lambda n: "curl " + "\"'" * n),
    _skill("open comments", 20_000, lambda n: "<!--" * n),
    _skill("comments", 20_000, lambda n: "<!-- a -->" * n),
    _skill("comments in code", 10_000, lambda n: "```\n<!-- a -->\n```\n" * n),
    _skill("links to missing files", 10_000, lambda n: "".join(f"[a]({i}.md)" for i in range(n))),
    _skill("open links", 20_000, lambda n: "](<" * n),
    _skill("open links in backticks", 20_000, lambda n: "`scripts/" * n),
    # -- scripts of a skill
    _script("sh", "options of declare", 20_000, "declare -a "),
    _script("sh", "options without a name", 20_000, "-a "),
    _script("sh", "variables", 20_000, "$A${B}"),
    _script("sh", "open loops", 20_000, "for A "),
    _script("py", "open reads", 20_000, "os.environ[ "),
    _script("py", "open names", 20_000, "os.environ['a"),
    _script("py", "imports", 10_000, "from os import environ, "),
    _script("js", "open braces", 20_000, "{a,"),
    _script("js", "destructured variables", 10_000, "{a,b} = process.env; "),
    _script("js", "aliases", 10_000, "a = process.env; "),
    # -- packs
    _pack("missing context files", 2_000, lambda n: {"context": [f"{i}.md" for i in range(n)]}),
    _pack("missing scripts", 2_000, lambda n: {"scripts": [f"{i}.sh" for i in range(n)]}),
    _pack("paths outside", 2_000, lambda n: {"context": ["../a"] * n}),
    _pack("variables", 2_000, lambda n: {"envVars": [f"A{i}" for i in range(n)]}),
    _pack("hidden trigger patterns", 1_000, lambda n: {"triggerPatterns": ["a\u200bb"] * n}),
    _pack("unknown keys", 2_000, lambda n: {f"key{i}": i for i in range(n)}),
    # -- front matter
    _front("glued ends", 5_000, lambda n: "---\n" + "--- x\n" * n),
    _front("blank lines before it", 50_000, lambda n: " \n" * n + "x"),
    _front("not closed", 20_000, lambda n: "---\n" + "x\n" * n),
    _front("values to quote", 300, lambda n: "---\n" + "a: b: c\n" * n + "---\n"),
    _front("nested lists", 10_000, lambda n: "---\na: " + "[" * n + "\n---\n"),
    _front("nested maps", 2_000, lambda n: "---\na: " + "{a: " * n + "\n---\n"),
    _front("indicators", 10_000, lambda n: "---\n" + "- " * n + "\n---\n"),
    _front(
        "unknown fields", 500, lambda n: "---\n" + "".join(f"k{i}: 1\n" for i in range(n)) + "---\n"
    ),
    _front("parentheses of tools", 10_000, lambda n: f"---\nallowed-tools: {'(a' * n}\n---\n"),
    _front("digits in a name", 10_000, lambda n: f"---\nname: {'1 ' * n}\n---\n"),
    _front("paragraphs", 20_000, lambda n: "# a\n" * n),
    # -- JSON
    _json("open string of escapes", 20_000, lambda n: "[" + "[]," * 50 + '"' + '\\"' * n),
    _json("nested lists", 20_000, lambda n: "[" * n),
    _json("nested objects", 20_000, lambda n: '{"a":' * n),
    _json("one line", 5_000, lambda n: json.dumps({"id": 1, **{f"k{i}": [] for i in range(n)}})),
    _json("half characters", 5_000, lambda n: '["' + '\\ud800","' * n + '"]'),
    _json("equal keys", 5_000, lambda n: '{"a":1' + ',"a":1' * n + "}"),
    _json("digits", 2_000, lambda n: "[" + "1" * n + "]"),
    # -- names, tools, places, descriptions
    *(
        _text(
            f"Markdown for Telegram: {sign}", 20_000, from_markdown, lambda n, sign=sign: sign * n
        )
        for sign in ("[a](", "[", "*a ", "`a` `", "a_ ", "[x](http://")
    ),
    _text("parts for Telegram", 50_000, lambda t: split(FormattedText(t)), lambda n: "😀 " * n),
    _text("split_tools", 20_000, split_tools, lambda n: "a(b, (" * n),
    _text("slug", 20_000, names.slug, lambda n: "1-" * n),
    _text("TOML keys", 5_000, locate, lambda n: "".join(f"k{i} = [1, 2]\n" for i in range(n))),
    _text("TOML of one line", 5_000, locate, lambda n: "a = [" + "'x', " * n + "]\n"),
    _text("open comments of a soul", 20_000, has_words, lambda n: "<!--" * n),
    # -- reflexes
    _reflexes("open tables", 2_000, lambda n: "[[reflex]]\n" * n),
    _reflexes("nested lists", 20_000, lambda n: "a = " + "[" * n),
    _text("open placeholders", 20_000, _template, lambda n: "{" * n),
    _text("braces", 20_000, _template, lambda n: "{{" * n),
    _text("placeholders", 40_000, _template, lambda n: "{a}" * n),
    _text(
        "ambiguous pattern",
        200,
        lambda text: compile_trigger("(a*)*(a|a)*b").match(text),
        lambda n: "a" * n,
    ),
    _text("ambiguous rule", 50_000, lambda text: contains("(a|a)*(a*)*b", text), lambda n: "a" * n),
    # -- links
    _text("labels", 20_000, links, lambda n: "a." * n + "@"),
    _text("hosts without a scheme", 20_000, links, lambda n: "www." * n),
    _text("schemes", 20_000, links, lambda n: "a://" * n),
    _text("hyphens", 20_000, links, lambda n: "-" * n + "."),
    _text(
        "punycode", 10_000, lambda text: links_from("https://a.bc", text), lambda n: "xn--a-" * n
    ),
    _text(
        "users before a host",
        20_000,
        lambda text: links_beyond(text, ""),
        lambda n: "a://" + "b@" * n,
    ),
    _text(
        "many links",
        2_000,
        lambda text: links_from(text, text),
        lambda n: "".join(f"a{i}.bc " for i in range(n)),
    ),
    # -- redaction
    _text("open web tokens", 10_000, _scrub, lambda n: "-eyJaaaaaaaa" * n),
    _text("web tokens with one dot", 10_000, _scrub, lambda n: "-eyJaaaaaaaa" * n + ".b"),
    _text("bearers", 20_000, _scrub, lambda n: "Bearer " * n),
    _text("blanks after a bearer", 50_000, _scrub, lambda n: "Bearer" + " " * n),
    _text("passwords without a host", 20_000, _scrub, lambda n: "://a:" * n),
    _text("keys of providers", 20_000, _scrub, lambda n: "sk-AIza" * n),
    _text("private keys", 10_000, _scrub, lambda n: "-----BEGIN PRIVATE KEY-----" * n),
    _text("authorizations", 10_000, _scrub, lambda n: "Authorization : " * n),
    _text("a secret of one letter", 20_000, _scrub, lambda n: "a" * n),
    # -- envelopes and arguments
    _text(
        "attachments",
        500,
        _envelope,
        lambda n: _envelope_of(
            {"attachments": [{"media_type": "a/b", "storage_ref": "c", "size_bytes": 1}] * n}
        ),
    ),
    _text(
        "raw data",
        5_000,
        _envelope,
        lambda n: _envelope_of({"raw": {f"k{i}": ["a"] for i in range(n)}}),
    ),
    _text("long event", 50_000, _envelope, lambda n: _envelope_of({}, "%:" * n)),
    _text("commands", 50_000, parse_command, lambda n: "/pause " * n),
    _text("command of blanks", 50_000, parse_command, lambda n: "/pause" + " " * n + "\u2028x"),
    _text("arguments", 20_000, lambda text: json_safe({"a": [text] * 20}), lambda n: "\\" * n),
    _text("half characters", 50_000, text_safe, lambda n: "\ud800" * n),
]


def _cost(work: Work) -> float:
    gc.disable()
    try:
        started = time.process_time()
        work()
        return time.process_time() - started
    finally:
        gc.enable()


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.name for attack in ATTACKS])
def test_work_grows_linearly(attack: Attack, tmp_path: Path) -> None:
    small = attack.prepare(tmp_path, attack.size)
    large = attack.prepare(tmp_path, attack.size * 2**DOUBLINGS)
    small()  # imports and caches
    least_small = least_large = float("inf")
    for _ in range(ATTEMPTS):
        least_small = min(least_small, _cost(small))
        least_large = min(least_large, _cost(large))
        if least_large <= max(NOISE_S, least_small * PER_DOUBLING**DOUBLINGS):
            return
        if least_large > HOPELESS_S:
            break
    growth = (least_large / least_small) ** (1 / DOUBLINGS)
    pytest.fail(f"{growth:.1f} times the work per doubling, {least_large:.3f} s at the larger size")


def test_every_part_that_reads_outside_text_is_attacked() -> None:
    assert len(ATTACKS) >= 30
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)


def test_growth_of_a_quadratic_search_is_noticed(tmp_path: Path) -> None:
    """The measurement itself: a search that starts again at every character fails."""

    def search(text: str) -> object:
        return re.search("a*b", text)

    attack = _text("quadratic", 2_000, search, lambda n: "a" * n)
    with pytest.raises(pytest.fail.Exception, match="times the work per doubling"):
        test_work_grows_linearly(attack, tmp_path)


def test_description_of_a_nested_script_is_bounded(tmp_path: Path) -> None:
    for text in ("(" * 16_000, "-" * 16_000 + "1", "[" * 8_000 + "]" * 8_000):
        (tmp_path / "run.py").write_text(text)
        assert describe_script(tmp_path / "run.py") == ""
