"""The dashboard in a real browser, on a fleet that `butlers up` started."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from playwright.sync_api import Browser, BrowserContext, Page, expect

from support import npm
from support.browser import chromium
from support.fleet import PATIENCE_S, Fleet

PAGES = (
    "/",
    "/chat",
    "/data",
    "/data?query=weight",
    "/data/health",
    "/data/health/measurements",
    "/memory",
    "/memory?query=tea",
    "/approvals",
    "/schedules",
    "/messages",
    "/sessions",
    "/contacts",
    "/connectors",
    "/import",
    "/butlers",
    "/butlers/health",
    "/butlers/health/soul",
    "/skills",
    "/secrets",
    "/costs",
    "/audit",
    "/audit?who=all",
    "/settings",
    "/settings/public",
    "/more",
    "/design",
)
PHONE = {"width": 390, "height": 844}
PAYLOAD = '<img src=x onerror="document.title=\'pwned\'"><script>document.title="pwned"</script>'

# Bytes of the page with its styles, scripts and icons, as they went over the wire.
WEIGHT = """
['navigation', 'resource'].flatMap((kind) => performance.getEntriesByType(kind))
  .reduce((sum, entry) => sum + entry.encodedBodySize, 0)
"""
SENT = ("method", "url", "params", "headers", "json", "data")  # of a request, as httpx takes it
EXAMPLES = int(os.environ.get("BUTLERS_API_EXAMPLES", "4"))  # per operation; more in a long run

expect.set_options(timeout=PATIENCE_S * 1000 / 2)


class DashboardFleet:
    """A fleet whose methods run in another thread: the browser's library holds this thread's loop."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._thread = ThreadPoolExecutor(1)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._fleet, name)
        return lambda *arguments: self._thread.submit(method, *arguments).result()


@pytest.fixture(scope="module")
def board(template_home: Path) -> Iterator[DashboardFleet]:
    fleet = Fleet.copy_of(template_home)
    try:
        fleet.up()
        yield DashboardFleet(fleet)
    finally:
        fleet.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


def sign_in(
    board: DashboardFleet, browser: Browser, **options: Any
) -> tuple[BrowserContext, Page, str]:
    link = board.butlers("dashboard", "--no-open").stdout.strip()
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE_S * 1000 / 2)
    page = context.new_page()
    page.goto(link)
    address = link.split("/sign-in")[0]
    page.wait_for_url(f"{address}/")
    return context, page, address


@pytest.fixture
def page(board: DashboardFleet, browser: Browser) -> Iterator[Page]:
    """A signed-in page. A script error, a blocked script or a failed request fails the test."""
    context, page, _ = sign_in(board, browser)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    yield page
    context.close()
    assert problems == []


def test_message_is_answered_on_the_page_and_undone(board: DashboardFleet, page: Page) -> None:
    page.get_by_role("link", name="Chat").click()
    page.get_by_label("Message").fill("weight 71.25 kg")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Logged: weight 71.25 kg.")).to_be_visible()
    page.get_by_role("button", name="undo").last.click()
    expect(page.get_by_text(re.compile("undone: .*71.25 kg removed"))).to_be_visible()
    assert board.rows("SELECT 1 FROM health.measurements WHERE value = 71.25") == []


def test_record_is_corrected_followed_to_its_message_and_exported(
    board: DashboardFleet, page: Page
) -> None:
    request_id = board.send("weight 66 kg")
    board.replies(request_id)
    page.goto(page.url + "data/health/measurements")
    row = page.get_by_role("row").filter(has_text="66")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert "weight" in Path(download.value.path()).read_text()
    row.get_by_role("link", name="weight").click()
    notes = page.locator("form").filter(has_text="notes")
    notes.get_by_role("textbox").fill("after lunch")
    notes.get_by_role("button", name="Save").click()
    expect(page.get_by_text("changed")).to_be_visible()
    (kept,) = board.rows("SELECT notes FROM health.measurements WHERE value = 66")
    assert kept["notes"] == "after lunch"
    page.get_by_role("link", name="message", exact=True).first.click()
    expect(page.get_by_role("heading", name="Path of a message")).to_be_visible()


def test_schedule_is_turned_off_and_deleted(board: DashboardFleet, page: Page) -> None:
    task = {"name": "Call the bank", "cron": "0 9 * * *", "prompt": "Remind me of the bank."}
    board.call("general", "schedule_create", task)
    page.get_by_role("link", name="Schedules", exact=True).click()
    card = page.locator("section").filter(has_text="Call the bank")
    card.get_by_role("button", name="Turn off").click()
    expect(card.get_by_text("! off")).to_be_visible()
    page.on("dialog", lambda dialog: dialog.accept())
    card.get_by_role("button", name="Delete").click()
    expect(card).to_have_count(0)


def test_action_is_approved_and_done(board: DashboardFleet, page: Page) -> None:
    to_bob = {"message": "hi Bob", "channel": "console", "recipient": "console:bob"}
    board.call("general", "notify", {**to_bob, "intent": "send"})
    page.get_by_role("link", name="Approvals", exact=True).click()
    waiting = page.get_by_role("article").filter(has_text="hi Bob")
    while waiting.count() == 0:
        page.reload()
    waiting.get_by_role("button", name="Always").click()
    expect(waiting.get_by_role("button", name="Approve and always allow")).to_be_visible()
    waiting.get_by_role("button", name="Approve", exact=True).click()
    expect(waiting).to_have_count(0)
    mail = board.call("messenger", "console_receive", {"target": "console:bob", "wait_s": 20})
    assert [one["message"] for one in mail["mail"]] == ["hi Bob"]


def test_fact_is_found_corrected_and_forgotten(board: DashboardFleet, page: Page) -> None:
    fact = {"subject": "Alice", "predicate": "drinks", "content": "Alice drinks green tea"}
    board.call("general", "memory_store_fact", fact)
    page.get_by_role("link", name="Memory", exact=True).click()
    page.get_by_label("Search memory").fill("what does Alice drink")
    page.keyboard.press("Enter")
    found = page.get_by_role("listitem").filter(has_text="Alice drinks green tea").first
    found.get_by_text("why this came back").click()
    expect(found.get_by_text("same words", exact=True)).to_be_visible()
    found.get_by_role("link", name="Alice drinks green tea").click()
    expect(page.get_by_text("Said by")).to_be_visible()
    page.get_by_label("Correct it").fill("Alice drinks black tea")
    page.get_by_role("button", name="Save correction").click()
    expect(page.get_by_text("Alice drinks black tea").first).to_be_visible()
    expect(page.get_by_role("link", name="Alice drinks green tea")).to_be_visible()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Forget").click()
    expect(page.get_by_role("heading", name="Newest facts")).to_be_visible()
    active = "SELECT content FROM general.memory_facts WHERE subject = $1 AND validity = 'active'"
    assert board.rows(active, "Alice") == []


def test_soul_is_edited_shown_as_difference_and_undone(board: DashboardFleet, page: Page) -> None:
    page.goto(f"{page.url}butlers/general/soul")
    expect(page.get_by_text("Only you can change it")).to_be_visible()
    text = page.get_by_label("Text")
    before = text.input_value()
    text.fill(f"{before}\nAlways rhyme.")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("+Always rhyme.")).to_be_visible()
    soul = board.call("general", "soul_show", {})
    assert soul["text"].endswith("Always rhyme.")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Undo the last edit").click()
    expect(page.get_by_text("Not edited yet")).to_be_visible()
    assert board.call("general", "soul_show", {})["text"] == before


def test_file_is_previewed_imported_and_taken_back(
    board: DashboardFleet, page: Page, tmp_path: Path
) -> None:
    file = tmp_path / "export.zip"
    record = (
        '<Record type="HKQuantityTypeIdentifierBodyMass" sourceName="Scale" unit="kg"'
        ' startDate="2026-03-{day} 08:00:00 +0000" endDate="2026-03-{day} 08:00:00 +0000"'
        ' value="{value}"/>'
    )
    rows = "".join(record.format(day=10 + day, value=70 + day) for day in range(3))
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("apple_health_export/export.xml", f"<HealthData>{rows}</HealthData>")
    page.goto(f"{page.url}import")
    page.get_by_label("File, up to 25 MB").set_input_files(file)
    page.get_by_role("button", name="Show preview").click()
    expect(page.get_by_text("Nothing is stored yet.")).to_be_visible()
    page.get_by_role("button", name="Import 3 rows").click()
    expect(page.get_by_text("✓ Imported: 3 added")).to_be_visible()
    stored = "SELECT value FROM health.measurements WHERE sender LIKE '%export.zip%'"
    assert sorted(int(row["value"]) for row in board.rows(stored)) == [70, 71, 72]
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Take it back").click()
    expect(page.get_by_text("Taken back: 3 rows removed")).to_be_visible()
    assert board.rows(stored) == []


def test_secret_goes_in_and_is_never_shown(board: DashboardFleet, page: Page) -> None:
    page.get_by_role("link", name="Secrets", exact=True).click()
    page.get_by_label("Name").fill("PHONE_SECRET")
    page.get_by_label("Value").fill("hunter2-of-the-phone")
    page.get_by_role("button", name="Save").click()
    row = page.get_by_role("row").filter(has_text="PHONE_SECRET")
    expect(row).to_be_visible()
    assert "hunter2" not in page.content()
    page.get_by_role("link", name="Audit", exact=True).click()
    expect(page.get_by_text("secret set")).to_be_visible()
    assert "hunter2" not in page.content()
    page.go_back()
    page.on("dialog", lambda dialog: dialog.accept())
    row.get_by_role("button", name="Delete").click()
    expect(row).to_have_count(0)


def test_dead_letter_is_replayed(board: DashboardFleet, page: Page) -> None:
    board.rows(
        """
        INSERT INTO general.queue_items
            (id, queue, key, payload, state, attempts, max_attempts, error, finished_at)
        VALUES (gen_random_uuid(), 'old', 'lost', '{}', 'dead', 5, 5, 'the model was away', now())
        """
    )
    page.get_by_role("link", name="Messages", exact=True).click()
    letter = page.get_by_role("listitem").filter(has_text="the model was away")
    letter.get_by_role("button", name="Replay").click()
    expect(letter).to_have_count(0)


def test_module_is_toggled(board: DashboardFleet, page: Page) -> None:
    page.goto(page.url + "butlers/general")
    modules = page.get_by_role("listitem").filter(has_text="general")
    modules.get_by_role("button", name="Turn off").first.click()
    expect(modules.get_by_role("button", name="Turn on").first).to_be_visible()
    modules.get_by_role("button", name="Turn on").first.click()
    expect(modules.get_by_role("button", name="Turn off").first).to_be_visible()


def test_stored_scripts_do_not_run(board: DashboardFleet, page: Page) -> None:
    """Attack: every text that others can write is a script. Pages show it as text, nothing runs.

    The page's fixture fails on a violation of the content policy, too.
    """
    board.replies(board.send(f"note: {PAYLOAD}"))
    fact = {"subject": PAYLOAD, "predicate": "says", "content": f"tea {PAYLOAD}"}
    sender = {"channel": "email", "identity": "x@example.org", "name": PAYLOAD}
    task = {"name": PAYLOAD[:60], "cron": "0 9 * * *", "prompt": PAYLOAD}
    heartbeat = {
        "kind": "telegram",
        "endpoint_identity": PAYLOAD[:80],
        "instance_id": str(uuid4()),
        "sent_at": "2026-03-01T08:00:00Z",
        "state": "error",
        "error": PAYLOAD,
    }
    for butler, tool, arguments in (
        ("general", "remind", {"message": PAYLOAD, "in_minutes": 600}),
        ("general", "schedule_create", task),
        ("general", "memory_store_fact", fact),
        ("general", "soul_edit", {"text": f"You are {PAYLOAD}"}),
        ("switchboard", "contacts_allow", sender),
        ("switchboard", "connector_heartbeat", {"heartbeat": heartbeat}),
    ):
        board.call(butler, tool, arguments)
    address = page.url.rstrip("/")
    paths = ("/butlers/general/soul", "/data/general/notes", "/data?query=onerror", *PAGES)
    for path in paths:
        page.goto(address + path)
        page.wait_for_load_state("load")
        assert page.title() != "pwned", path
    (kept,) = page.request.get(f"{address}/api/messages?query=onerror").json()["data"]
    assert kept["text"] == f"note: {PAYLOAD}"
    board.call("general", "soul_undo", {})


def test_api_answers_invented_requests_without_failing(board: DashboardFleet, page: Page) -> None:
    """Attack: values that nobody expects in every parameter of every operation of the JSON API."""
    scopes = ("--scope", "read", "--scope", "write")
    token = board.butlers("tokens", "create", "fuzz", *scopes).stdout.split()[-1]
    headers = {"authorization": f"Bearer {token}"}
    address = page.url.rstrip("/")
    document = httpx.get(f"{address}/api/openapi.json", headers=headers).json()
    schema = schemathesis.openapi.from_dict(document)
    client = httpx.Client(timeout=PATIENCE_S)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) >= 12
    for operation in operations:

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            sent = case.as_transport_kwargs(base_url=address, headers=headers)
            answer = client.request(**{key: sent[key] for key in SENT if key in sent})
            assert answer.status_code in (200, 400, 404, 405, 422, 429, 503), answer.text
            assert "Traceback" not in answer.text
            assert token not in answer.text

        ask()
    client.close()
    board.butlers("tokens", "revoke", "fuzz")


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_every_page_is_accessible_small_and_asks_nobody_else(
    board: DashboardFleet, browser: Browser, size: str
) -> None:
    """axe-core finds no serious violation, no page is over 150 KB, no request leaves the machine."""
    board.replies(board.send("weight 80 kg"))
    options = {"viewport": PHONE} if size == "phone" else {}
    context, page, address = sign_in(board, browser, **options)
    axe = (npm.installed("pages") / "axe.min.js").read_text()
    foreign: list[str] = []
    page.on("request", lambda r: None if r.url.startswith(address) else foreign.append(r.url))
    for path in PAGES:
        answer = page.goto(address + path)
        assert answer is not None
        assert answer.status == 200, path
        assert page.evaluate(WEIGHT) < 150_000, path
        page.evaluate(axe)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        serious = [
            (one["id"], one["nodes"][0]["html"])
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]
        assert serious == [], path
        wide = page.evaluate("document.documentElement.scrollWidth > innerWidth + 1")
        assert not wide, f"{path} is wider than the screen"
    assert foreign == []
    context.close()


def test_keyboard_alone_reaches_the_answer(board: DashboardFleet, page: Page) -> None:
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('href')") == "/chat":
            break
    page.keyboard.press("Enter")
    expect(page.get_by_label("Message")).to_be_focused()
    page.keyboard.type("pulse 61")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Logged: pulse 61 bpm.")).to_be_visible()


def test_link_works_once(board: DashboardFleet, browser: Browser) -> None:
    link = board.butlers("dashboard", "--no-open").stdout.strip()
    for expected in ("Good to see you", "Sign in"):
        context = browser.new_context()
        page = context.new_page()
        page.goto(link)
        expect(page.get_by_role("heading", name=expected)).to_be_visible()
        context.close()
