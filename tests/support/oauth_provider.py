"""An OAuth provider on loopback: authorization code with PKCE, and refresh tokens."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from butlers.wire.oauth import OAuthPreset


class OAuthProvider:
    def __init__(self) -> None:
        self.asked: dict[str, str] = {}  # by code: the challenge that belongs to it
        self.refresh_tokens = {"refresh-1"}
        self.issued = 0
        self.forms: list[dict[str, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def preset(self) -> OAuthPreset:
        return OAuthPreset(f"{self.url}/authorize", f"{self.url}/token", "mail")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def authorize(self, url: str, **changes: str) -> str:
        """Return the redirect of a person who agrees at this address."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        code = f"code-{len(self.asked)}"
        self.asked[code] = query["code_challenge"]
        answer = {"code": code, "state": query["state"], **changes}
        return f"{query['redirect_uri']}?{urlencode(answer)}"

    def token(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        self.forms.append(form)
        if form["grant_type"] == "authorization_code":
            verifier = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(verifier).rstrip(b"=").decode()
            if self.asked.pop(form["code"], None) != challenge:
                return 400, {"error": "invalid_grant"}
            return 200, {"access_token": "access-0", "refresh_token": "refresh-1"}
        if form["refresh_token"] not in self.refresh_tokens:
            return 400, {"error": "invalid_grant"}
        self.issued += 1
        return 200, {"access_token": f"access-{self.issued}", "expires_in": 3600}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["content-length"])).decode()
                form = {name: values[0] for name, values in parse_qs(raw).items()}
                status, answer = provider.token(form)
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return None

        return Handler
