"""Secrets are masked in every form in which they travel, and ordinary text is left alone."""

from __future__ import annotations

import base64
import json
import threading
from dataclasses import dataclass
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.domain.redaction import MASK, PATTERNS, Redactor, SecretText

PLANTED = 'pä55 "wörd"/+\\end'
MULTILINE = "-----first line of it-----\nsecond line of the secret\nx\n"


@pytest.fixture
def redactor() -> Redactor:
    made = Redactor()
    made.register(PLANTED, MULTILINE)
    return made


FORMS = {
    "itself": PLANTED,
    "base64": base64.b64encode(PLANTED.encode()).decode(),
    "base64 for URLs": base64.urlsafe_b64encode(PLANTED.encode()).decode(),
    "base64 without padding": base64.b64encode(PLANTED.encode()).decode().rstrip("="),
    "URL": quote(PLANTED, safe=""),
    "URL path": quote(PLANTED),
    "form": quote_plus(PLANTED),
    "URL in lower case": quote(PLANTED, safe="").replace("%C3%A4", "%c3%a4"),
    "JSON": json.dumps(PLANTED)[1:-1],
    "JSON in UTF-8": json.dumps(PLANTED, ensure_ascii=False)[1:-1],
    "JSON in JSON": json.dumps(json.dumps(PLANTED))[3:-3],
    "repr": repr(PLANTED)[1:-1],
    "repr of bytes": repr(PLANTED.encode())[2:-1],
    "several lines": MULTILINE,
    "several lines in JSON": json.dumps(MULTILINE)[1:-1],
    "one of several lines": "second line of the secret",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_registered_value_is_masked_in_each_of_its_forms(redactor: Redactor, form: str) -> None:
    if form != FORMS["URL in lower case"]:
        assert redactor.scrub(f"before<{form}>after") == f"before<{MASK}>after"
    assert "wörd" not in redactor.scrub(form)


@pytest.mark.parametrize("user", ["", "a", "ab", "abc", "someone"])
@pytest.mark.parametrize("after", ["", "!", "!!"])
def test_secret_in_basic_authentication_is_masked(user: str, after: str) -> None:
    redactor = Redactor()
    redactor.register("correct-horse-battery")
    whole = f"{user}:correct-horse-battery{after}"
    scrubbed = redactor.scrub(base64.b64encode(whole.encode()).decode())
    assert MASK in scrubbed
    kept = scrubbed.replace(MASK, "").rstrip("=")
    assert len(kept) * 6 <= (len(user) + 1 + len(after)) * 8 + 16


SHAPES = {
    "Anthropic": ("sk-ant-api03-AbCdEf0123456789_-AbCd", ""),
    "OpenAI": ("sk-proj-0123456789abcdefABCDEF", ""),
    "GitHub": ("ghp_0123456789abcdefABCDEF0123456789abcd", ""),
    "GitHub, fine-grained": ("github_pat_11ABCDEFG0123456789abcdef", ""),
    "Slack": ("xoxb-123456789012-abcdefABCDEF", ""),
    "Google": ("AIzaSyA0123456789abcdefghijklmnopqrstuv", ""),
    "Telegram": ("123456:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw", ""),
    "Telegram in an address": ("987654321:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw", "/bot"),
    "bearer": ("AbCdEfGhIjKlMnOpQrStUvWx", "Authorization: Bearer "),
    "short bearer": ("tok3n-xyz", "bearer "),
    "basic": ("dXNlcjpwYXNzd29yZA==", '{"Authorization": "Basic '),
    "database": ("hunter2-horse", "postgresql://butler:"),
    "JWT": ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijklmnop", ""),
    "a peer's token": ("b1." + "a" * 60 + "." + "b" * 43, ""),
    "a session's token": ("bs." + "c" * 43, ""),
}


@pytest.mark.parametrize(("secret", "before"), SHAPES.values(), ids=SHAPES)
def test_a_well_known_shape_is_masked_without_being_registered(secret: str, before: str) -> None:
    after = "@localhost/db" if before.startswith("postgresql") else " is there"
    text = f"see {before}{secret}{after}"
    scrubbed = Redactor().scrub(text)
    assert secret not in scrubbed
    assert scrubbed == f"see {before}{MASK}{after}"
    assert Redactor().scrub(scrubbed) == scrubbed


def test_a_private_key_is_masked() -> None:
    text = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----"
    assert "MIIE" not in Redactor().scrub(text)


@pytest.mark.parametrize(
    "text",
    [
        "weight 80.4 kg",
        "the bearer token is missing",
        "Bearer authentication failed",
        "http://127.0.0.1:40100/mcp",
        "see https://example.org:8080/a@b and mail bob@example.org",
        "at 2026-11-15T12:34:56+00:00: task-1234 asked skip-list",
        "postgresql://localhost/butlers",
        "",
    ],
)
def test_ordinary_text_stays_as_it_is(redactor: Redactor, text: str) -> None:
    assert redactor.scrub(text) is text


def test_values_too_short_to_tell_apart_are_not_masked() -> None:
    redactor = Redactor()
    redactor.register("", None, "abc", "   ", "  ab  ", "abcd")
    assert redactor.scrub("abc ab abcd    ") == f"abc ab {MASK}    "


def test_overlapping_secrets_are_masked_completely() -> None:
    redactor = Redactor()
    redactor.register("abcdef", "defghi", "cdefg")
    assert redactor.scrub("x abcdefghi y") == f"x {MASK} y"


@dataclass
class Holder:
    token: str


def test_data_is_scrubbed_deeply_and_keeps_its_shape(redactor: Redactor) -> None:
    redactor.register("48151623")
    data = {
        "plain": [1, 2.5, None, True, "fine"],
        PLANTED: {"deep": (PLANTED, {"deeper": [f"x{PLANTED}"]})},
        "number": 48151623,
        "bytes": PLANTED.encode(),
        "holder": Holder(PLANTED),
        "error": ValueError(f"no {PLANTED}"),
        "untouched": Holder("fine"),
        "wrapped": SecretText("never registered"),
        "set": {PLANTED},
    }
    scrubbed = redactor.scrub_data(data)
    assert "wörd" not in repr(scrubbed)
    assert scrubbed["plain"] == [1, 2.5, None, True, "fine"]
    assert scrubbed[MASK] == {"deep": (MASK, {"deeper": [f"x{MASK}"]})}
    assert scrubbed["number"] == scrubbed["wrapped"] == MASK
    assert scrubbed["error"] == f"no {MASK}"
    assert scrubbed["untouched"] is data["untouched"]
    assert data["number"] == 48151623


def test_cyclic_data_terminates() -> None:
    knot: list[object] = []
    knot.append(knot)
    assert "nested too deeply" in repr(Redactor().scrub_data(knot))


def test_a_secret_text_is_used_as_text_and_hides_when_shown() -> None:
    secret = SecretText("planted-value")
    assert f"Bearer {secret}" == "Bearer planted-value"
    assert json.loads(json.dumps(secret)) == "planted-value"
    assert "planted" not in repr(secret) + repr([secret]) + f"{secret!r}"


def test_registering_from_many_threads_loses_none() -> None:
    redactor = Redactor()
    values = [f"planted-{number}-value" for number in range(200)]
    threads = [threading.Thread(target=redactor.register, args=(value,)) for value in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "planted" not in redactor.scrub(" ".join(values))


@given(
    st.text(min_size=4).filter(lambda text: len(text.strip()) >= 4 and text not in MASK),
    st.text(),
    st.text(),
)
def test_any_registered_secret_is_masked(secret: str, before: str, after: str) -> None:
    redactor = Redactor()
    redactor.register(secret)
    for shown in (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1]):
        pieces = redactor.scrub(before + shown + after).split(MASK)
        assert not any(shown in piece for piece in pieces)
    assert json.loads(json.dumps(redactor.scrub_data({"k": [before + secret + after]})))


def test_many_secrets_and_a_long_text_take_no_noticeable_time() -> None:
    redactor = Redactor()
    for number in range(300):
        redactor.register(f"planted-{number:04}-value")
    text = ("a.a.a:b://c:" * 20_000) + "planted-0007-value"
    assert redactor.scrub(text).endswith(MASK)


SAMPLES = (
    "sk-" + "a" * 16,
    "ghp_" + "a" * 20,
    "github_pat_" + "a" * 20,
    "xoxb-" + "1" * 10,
    "AIza" + "a" * 30,
    "123456:AA" + "a" * 20,
    "Bearer " + "a" * 20,
    "bearer 1aaaaaaa",
    "BEARER " + "a" * 20,
    "Authorization: Basic abc",
    "authorization=token abc",
    "x://:p@",
    f"b1.{'a' * 20}.{'a' * 40}",
    "bs." + "a" * 40,
    "eyJaaaaaaaa.aaaaaaaa.aaaaaaaa",
    "-----BEGIN PRIVATE KEY-----abc",
)


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_pattern_is_found_in_the_shortest_text(sample: str) -> None:
    fresh = Redactor()
    assert MASK in fresh.scrub(sample)
    assert MASK in fresh.scrub(f'say "{sample}" twice')


def test_every_pattern_has_a_sample() -> None:
    assert all(any(pattern.search(sample) for sample in SAMPLES) for _, pattern in PATTERNS)
