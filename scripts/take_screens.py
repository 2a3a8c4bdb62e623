"""Write screenshots of every dashboard page to build/screens: light and dark, desktop and phone.

    python scripts/take_screens.py HOME [PATH ...]

HOME is the folder of a running fleet, best of ``butlers demo --dir HOME``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
SCREENS = ROOT / "build" / "screens"
SIZES = {"desktop": {"width": 1280, "height": 860}, "phone": {"width": 390, "height": 844}}
SCHEMES = ("light", "dark")
PATHS = (
    "/",
    "/chat",
    "/data",
    "/data?query=alice",
    "/data/health",
    "/data/health/measurements",
    "/data/finance",
    "/data/finance/transactions",
    "/data/relationship",
    "/data/travel",
    "/data/general",
    "/memory",
    "/memory?query=alice",
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
    "/settings",
    "/settings/public",
    "/more",
    "/design",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("paths", nargs="*", default=PATHS)
    wanted = parser.parse_args()
    SCREENS.mkdir(parents=True, exist_ok=True)
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for file in take(browser, wanted.home, wanted.paths):
            sys.stdout.write(f"{file.relative_to(ROOT)}\n")
        browser.close()


def take(browser: Browser, home: Path, paths: list[str]) -> Iterator[Path]:
    for size, scheme in product(SIZES, SCHEMES):
        context = browser.new_context(viewport=SIZES[size], color_scheme=scheme)
        page = context.new_page()
        address = sign_in(page, home)
        for path in paths:
            page.goto(address + path)
            file = SCREENS / f"{file_name(path)}-{size}-{scheme}.png"
            page.screenshot(path=file, full_page=size == "desktop")
            yield file
        context.close()


def file_name(path: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in path.strip("/")) or "home"


def sign_in(page: Page, home: Path) -> str:
    command = [sys.executable, "-m", "butlers.cli.main", "dashboard", "--no-open"]
    environment = {**os.environ, "BUTLERS_HOME": str(home)}
    link = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    page.goto(link.stdout.strip())
    address = link.stdout.split("/sign-in")[0]
    page.wait_for_url(f"{address}/")
    return address


if __name__ == "__main__":
    main()
