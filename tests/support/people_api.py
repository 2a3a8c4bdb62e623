"""Google's People API and token endpoint on loopback, as documented: sync tokens, pages, quotas, deletions.

``people.connections.list``: a sync token expires after seven days (EXPIRED_SYNC_TOKEN);
deleted people are reported with ``metadata.deleted``; all parameters except the page token must stay the
same over the pages of one answer.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Answer = tuple[int, dict[str, Any]]
MAX_PAGE = 1000
SCOPE = "https://www.googleapis.com/auth/contacts.readonly"


class PeopleApiServer:
    def __init__(self, page: int = MAX_PAGE) -> None:
        self.page = page
        self.people: dict[str, dict[str, Any]] = {}
        self.changed: dict[str, int] = {}  # version of the last change, by resource name
        self.version = 1
        self.oldest = 0  # sync tokens before this version have expired
        self.gone = False  # answer 410 to an expired token, as other Google APIs do
        self.refresh_tokens = {"refresh-1"}
        self.access_tokens: set[str] = set()
        self.errors: list[Answer] = []  # the next answers
        self.queries: list[dict[str, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def put(self, key: str, name: str, email: str | None = None, **fields: Any) -> None:
        resource = f"people/{key}"
        self._touch(resource)
        emails = [{"value": email, "type": "home"}] if email else []
        self.people[resource] = {
            "resourceName": resource,
            "etag": f"e{self.version}",
            "metadata": {"objectType": "PERSON"},
            "names": [{"displayName": name}],
            "emailAddresses": emails,
            **fields,
        }

    def delete(self, key: str) -> None:
        resource = f"people/{key}"
        self._touch(resource)
        self.people[resource] = {"resourceName": resource, "metadata": {"deleted": True}}

    def _touch(self, resource: str) -> None:
        self.version += 1
        self.changed[resource] = self.version

    def token(self, form: dict[str, str]) -> Answer:
        if form.get("refresh_token") not in self.refresh_tokens:
            return 400, {"error": "invalid_grant"}
        token = f"access-{len(self.access_tokens)}"
        self.access_tokens.add(token)
        return 200, {"access_token": token, "expires_in": 3599, "scope": SCOPE}

    def connections(self, query: dict[str, str], bearer: str) -> Answer:
        self.queries.append(query)
        if self.errors:
            return self.errors.pop(0)
        if bearer.removeprefix("Bearer ") not in self.access_tokens:
            return _error(401, "UNAUTHENTICATED")
        if not query.get("personFields") or int(query.get("pageSize", "100")) > MAX_PAGE:
            return _error(400, "INVALID_ARGUMENT")
        since = int(query["syncToken"].removeprefix("v")) if "syncToken" in query else None
        if since is not None and since < self.oldest:
            return _error(410, "GONE") if self.gone else _error(400, "EXPIRED_SYNC_TOKEN")
        found = [
            person
            for resource, person in self.people.items()
            if (since is None and not person["metadata"].get("deleted"))
            or (since is not None and self.changed[resource] > since)
        ]
        start = int(query.get("pageToken", "0"))
        size = min(self.page, int(query.get("pageSize", "100")))
        answer: dict[str, Any] = {"connections": found[start : start + size]}
        if start + size < len(found):
            answer["nextPageToken"] = str(start + size)
        elif query.get("requestSyncToken") == "true":
            answer["nextSyncToken"] = f"v{self.version}"
        return 200, answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(asked.query).items()}
                known = asked.path == "/v1/people/me/connections"
                bearer = self.headers.get("Authorization", "")
                self._answer(
                    server.connections(query, bearer) if known else _error(404, "NOT_FOUND")
                )

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                form = {name: values[0] for name, values in parse_qs(body).items()}
                self._answer(server.token(form))

            def _answer(self, answer: Answer) -> None:
                content = json.dumps(answer[1]).encode()
                self.send_response(answer[0])
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                return None

        return Handler


def _error(code: int, status: str) -> Answer:
    """Return an error in Google's form; the reason of an expired token stands in the details."""
    name = "FAILED_PRECONDITION" if status == "EXPIRED_SYNC_TOKEN" else status
    return code, {"error": {"code": code, "status": name, "details": [{"reason": status}]}}


def quota_error() -> Answer:
    return _error(429, "RESOURCE_EXHAUSTED")
