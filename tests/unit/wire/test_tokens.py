"""Bearer tokens of a fleet: anything but an exact token raises NotAuthenticated."""

from __future__ import annotations

import base64
import json
import os
import secrets
import stat
import string
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from butlers.domain.caller import Caller, CallerKind
from butlers.domain.errors import ConfigError, NotAuthenticated
from butlers.wire.tokens import FleetKey

KEY = FleetKey(bytes(range(32)))
FAR_AWAY = 4_102_444_800  # the year 2100
SOURCES = Path(__file__).resolve().parents[3] / "src"


def signed(body: bytes | str, key: FleetKey = KEY) -> str:
    """A token with any body, signed with the right key."""
    raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    text = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    return f"b1.{text}.{key._mac(text)}"


def claims(**changed: object) -> str:
    valid = {"k": "peer", "n": "switchboard", "a": "health", "e": FAR_AWAY}
    return json.dumps({k: v for k, v in {**valid, **changed}.items() if v is not ...})


@pytest.mark.parametrize("kind", list(CallerKind))
@pytest.mark.parametrize("name", ["switchboard", "Zoë 😀", ""])
def test_token_identifies_its_caller(kind: CallerKind, name: str) -> None:
    assert KEY.verify(KEY.mint(kind, name, "health"), "health") == Caller(kind, name)


def test_token_signed_by_hand_is_accepted() -> None:
    assert KEY.verify(signed(claims()), "health") == Caller(CallerKind.PEER, "switchboard")


def test_another_audience_is_refused() -> None:
    token = KEY.mint(CallerKind.PEER, "switchboard", "health")
    for audience in ("general", "healt", "health2", "", "HEALTH"):
        with pytest.raises(NotAuthenticated):
            KEY.verify(token, audience)


def test_an_expired_token_is_refused() -> None:
    with pytest.raises(NotAuthenticated):
        KEY.verify(KEY.mint(CallerKind.OWNER, "owner", "health", lifetime_s=-1), "health")


def test_another_fleets_token_is_refused() -> None:
    other = FleetKey(secrets.token_bytes(32))
    with pytest.raises(NotAuthenticated):
        KEY.verify(other.mint(CallerKind.OWNER, "owner", "health"), "health")


def test_no_character_of_a_token_can_be_changed() -> None:
    token = KEY.mint(CallerKind.PEER, "switchboard", "health")
    for position, character in enumerate(token):
        for other in ("A" if character != "A" else "B", "", "=", "é", "\ud800", "\x00"):
            with pytest.raises(NotAuthenticated):
                KEY.verify(token[:position] + other + token[position + 1 :], "health")


def test_claims_of_another_token_are_rejected() -> None:
    _, peer, mac = KEY.mint(CallerKind.PEER, "general", "health").split(".")
    _, owner, _ = KEY.mint(CallerKind.OWNER, "owner", "health").split(".")
    for token in (f"b1.{owner}.{mac}", f"b1.{owner}", f"b1..{mac}", f"b2.{peer}.{mac}"):
        with pytest.raises(NotAuthenticated):
            KEY.verify(token, "health")


@given(st.text() | st.text(alphabet=string.ascii_letters + string.digits + "._-="))
@example("")
@example("b1")
@example("b1..")
@example("b1.é.é")
@example("b1.\ud800.x")
@example("b1.x.\ud800")
@example("b1." + "." * 100)
def test_any_text_is_refused_and_raises_nothing_else(text: str) -> None:
    for token in (text, f"b1.{text}", f"b1.{text}.{text}"):
        with pytest.raises(NotAuthenticated):
            KEY.verify(token, "health")


@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_signed_bytes_are_refused_and_raise_nothing_else(body: bytes) -> None:
    with pytest.raises(NotAuthenticated):
        KEY.verify(signed(body), "health")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from("knae"), JSON)
def test_a_signed_token_with_an_odd_claim_is_refused_or_plain(claim: str, value: object) -> None:
    try:
        caller = KEY.verify(signed(claims(**{claim: value})), "health")
    except NotAuthenticated:
        return
    assert isinstance(caller.kind, CallerKind)
    assert isinstance(caller.name, str)


@pytest.mark.parametrize(
    "body",
    [
        "null",
        "[]",
        '"text"',
        "7",
        "{}",
        "[" * 100_000,
        claims(k="king"),
        claims(k=...),
        claims(n=...),
        claims(n=None),
        claims(a=...),
        claims(a=["health"]),
        claims(e=...),
        claims(e="tomorrow"),
        claims(e=float("nan")),
        claims(e=float("inf")),
        claims(e=None),
        claims(e=True),
    ],
)
def test_signed_data_that_is_no_token_is_rejected(body: str) -> None:
    with pytest.raises(NotAuthenticated):
        KEY.verify(signed(body), "health")


# -- the key ---------------------------------------------------------------------------------------


def test_derived_values_depend_on_key_and_purpose() -> None:
    other = FleetKey(secrets.token_bytes(32))
    assert KEY.derive("role:health") == FleetKey(bytes(range(32))).derive("role:health")
    assert len({KEY.derive("a"), KEY.derive("b"), other.derive("a"), other.derive("b")}) == 4
    assert KEY.instance != other.instance


def test_the_key_is_not_printed() -> None:
    assert "\\x" not in repr(KEY)
    assert repr(KEY.secret) not in repr(KEY)


def test_a_home_has_one_key_that_only_its_owner_can_read(tmp_path: Path) -> None:
    home = tmp_path / "home"
    key = FleetKey.load(home)
    assert len(key.secret) == 32
    assert FleetKey.load(home) == key
    assert FleetKey.load(tmp_path / "other") != key
    path = home / "keys" / "fleet.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("content", [b"", b"short"])
def test_a_damaged_key_is_not_used(tmp_path: Path, content: bytes) -> None:
    FleetKey.load(tmp_path)
    path = tmp_path / "keys" / "fleet.key"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"fleet\.key") as caught:
        FleetKey.load(tmp_path)
    assert caught.value.hint
    assert path.read_bytes() == content


RACER = """
import sys
import time
from pathlib import Path
from butlers.wire.tokens import FleetKey
print("ready", flush=True)
sys.stdin.readline()
print(FleetKey.load(Path(sys.argv[1])).secret.hex())
"""


def test_processes_that_race_get_one_key(tmp_path: Path) -> None:
    home = tmp_path / "home"
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCES)},
            text=True,
        )
        for _ in range(6)
    ]
    for racer in racers:
        assert racer.stdout
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:  # all of them have imported; now at once
        assert racer.stdin
        racer.stdin.write("go\n")
        racer.stdin.flush()
    keys = {racer.communicate()[0].strip() for racer in racers}
    assert {racer.returncode for racer in racers} == {0}
    assert keys == {FleetKey.load(home).secret.hex()}
    assert [path.name for path in (home / "keys").iterdir()] == ["fleet.key"]
    assert stat.S_IMODE((home / "keys" / "fleet.key").stat().st_mode) == 0o600


@pytest.mark.parametrize("hours", [-2, 2, 50])
def test_wall_clock_that_is_set_ends_no_token(monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    token, before = KEY.mint(CallerKind.PEER, "switchboard", "health"), time.time
    monkeypatch.setattr("butlers.wire.tokens.time.time", lambda: before() + hours * 3600)
    assert KEY.verify(token, "health").name == "switchboard"


def test_token_of_this_machine_expires_by_the_monotonic_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    token, before = KEY.mint(CallerKind.PEER, "switchboard", "health"), time.monotonic
    monkeypatch.setattr("butlers.wire.tokens.time.monotonic", lambda: before() + 601)
    with pytest.raises(NotAuthenticated):
        KEY.verify(token, "health")


def test_token_of_another_machine_expires_by_the_wall_clock() -> None:
    ever = 10**12
    assert KEY.verify(signed(claims(b="another boot", m=0)), "health")
    with pytest.raises(NotAuthenticated):
        KEY.verify(signed(claims(b="another boot", m=ever, e=0)), "health")
