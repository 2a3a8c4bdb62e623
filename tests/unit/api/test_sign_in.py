"""Sign-in store: one-time links, sessions, tokens, and what the file keeps of them."""

from __future__ import annotations

from pathlib import Path

from butlers.api.sign_in import LINK_S, SESSION_S, Scope, SignInStore


class _Time:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_link_signs_in_once(tmp_path: Path) -> None:
    store = SignInStore(tmp_path)
    link = store.make_link()
    session = store.use_link(link)
    assert session is not None
    visitor = store.visitor_of_session(session)
    assert visitor is not None
    assert visitor.csrf
    assert store.use_link(link) is None
    assert store.use_link("") is None


def test_link_made_by_another_process_is_known(tmp_path: Path) -> None:
    server, command = SignInStore(tmp_path), SignInStore(tmp_path)
    assert server.use_link("unknown") is None
    assert server.use_link(command.make_link()) is not None


def test_link_and_session_expire(tmp_path: Path) -> None:
    time = _Time()
    store = SignInStore(tmp_path, time)
    late = store.make_link()
    session = store.use_link(store.make_link())
    assert session is not None
    time.now += LINK_S + 1
    assert store.use_link(late) is None
    assert store.visitor_of_session(session) is not None
    time.now += SESSION_S
    assert store.visitor_of_session(session) is None


def test_session_survives_a_restart_and_ends_with_sign_out(tmp_path: Path) -> None:
    store = SignInStore(tmp_path)
    first, second = (store.use_link(store.make_link()) or "" for _ in range(2))
    assert SignInStore(tmp_path).visitor_of_session(first) is not None
    store.sign_out(first)
    assert store.visitor_of_session(first) is None
    assert store.visitor_of_session(second) is not None
    link = store.make_link()
    assert store.sign_out_everywhere() == 1
    assert store.visitor_of_session(second) is None
    assert store.use_link(link) is None


def test_token_has_its_scopes_until_it_is_revoked(tmp_path: Path) -> None:
    store = SignInStore(tmp_path)
    token = store.make_token("phone", frozenset({Scope.READ}))
    visitor = store.visitor_of_token(token)
    assert visitor is not None
    assert visitor.may(Scope.READ)
    assert not visitor.may(Scope.WRITE)
    assert visitor.csrf is None
    assert store.revoke_token("phone")
    assert not store.revoke_token("phone")
    assert store.visitor_of_token(token) is None


def test_file_is_private_and_holds_no_secret(tmp_path: Path) -> None:
    store = SignInStore(tmp_path)
    link = store.make_link()
    session = store.use_link(store.make_link()) or ""
    token = store.make_token("phone", frozenset(Scope))
    path = tmp_path / "dashboard" / "sign-in.json"
    content = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert all(secret not in content for secret in (link, session, token))
