"""Without an endpoint nothing of the OpenTelemetry SDK is even imported."""

from __future__ import annotations

import subprocess
import sys

from support.fleet import ROOT

PRINT = """
import sys
print(*sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""


def imported(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", code + PRINT],
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


USE = """
from pathlib import Path
from butlers.config.settings import Settings
from butlers.wire.telemetry import collecting, count_lease_expiries, is_on, span
with collecting(Settings(Path("/nowhere"))):
    with span("work"):
        count_lease_expiries("inbox")
    assert not is_on()
"""


def test_telemetry_package_does_not_import_opentelemetry() -> None:
    assert imported(USE) == set()


def test_command_does_not_import_opentelemetry() -> None:
    assert imported("import butlers.cli.main, butlers.wire.client\n") == set()


def test_daemon_imports_only_the_opentelemetry_api() -> None:
    """fastmcp and mcp import ``opentelemetry-api`` for themselves; without an SDK it does nothing."""
    found = imported("import butlers.daemon.fleet\n" + USE)
    assert {name for name in found if name.startswith("opentelemetry.sdk")} == set()
    assert {name for name in found if name.startswith("opentelemetry.exporter")} == set()
    assert {name for name in found if name.startswith("opentelemetry.proto")} == set()
    assert found == imported("import fastmcp, fastmcp.server.http, mcp\n" + USE)


def test_endpoint_imports_the_sdk() -> None:
    """The tests above would pass on a machine that has no SDK; this one says that it is here."""
    on = USE.replace('Path("/nowhere")', 'Path("/nowhere"), otlp_endpoint="http://127.0.0.1:9"')
    found = imported(on.replace("not is_on()", "is_on()").replace("collecting(", "collecting("))
    assert "opentelemetry.sdk.trace" in found


def test_an_endpoint_without_the_sdk_is_a_warning() -> None:
    missing = "import sys\nsys.modules['opentelemetry.sdk'] = None\n"
    on = USE.replace('Path("/nowhere")', 'Path("/nowhere"), otlp_endpoint="http://127.0.0.1:9"')
    done = subprocess.run(
        [sys.executable, "-c", missing + on],
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "telemetry is off" in done.stdout + done.stderr
    assert "pip install opentelemetry-sdk" in done.stdout + done.stderr
