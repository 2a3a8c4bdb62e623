from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from butlers.config.settings import Settings
from butlers.domain.errors import ConfigInvalid


def test_defaults() -> None:
    settings = Settings.from_environ({"HOME": "/home/ada"})
    assert settings.home == Path("/home/ada/.butlers")
    assert settings.database_url is None
    assert settings.master_key is None
    assert settings.port_offset == 0
    assert settings.log_format == "text"
    assert settings.otlp_endpoint is None
    assert settings.kill_point is None
    assert settings.test_pace == 1


def test_every_variable_is_read() -> None:
    settings = Settings.from_environ(
        {
            "BUTLERS_HOME": "/data",
            "DATABASE_URL": "postgresql://x",
            "BUTLERS_MASTER_KEY": "k",
            "BUTLERS_PORT_OFFSET": "-100",
            "BUTLERS_LOG": "json",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel",
            "BUTLERS_KILL_POINT": "after_claim",
            "BUTLERS_TEST_PACE": "5",
        }
    )
    assert settings.home == Path("/data")
    assert settings.database_url == "postgresql://x"
    assert settings.master_key == "k"
    assert settings.port_offset == -100
    assert settings.log_format == "json"
    assert settings.otlp_endpoint == "http://otel"
    assert settings.kill_point == "after_claim"
    assert settings.test_pace == 5


def test_an_empty_variable_counts_as_unset() -> None:
    names = ("BUTLERS_HOME", "DATABASE_URL", "BUTLERS_MASTER_KEY", "BUTLERS_PORT_OFFSET")
    more = ("BUTLERS_LOG", "OTEL_EXPORTER_OTLP_ENDPOINT", "BUTLERS_KILL_POINT", "BUTLERS_TEST_PACE")
    empty = Settings.from_environ({"HOME": "/h", **dict.fromkeys((*names, *more), "")})
    assert empty.home == Path("/h/.butlers")
    assert (empty.database_url, empty.master_key, empty.kill_point) == (None, None, None)
    assert (empty.port_offset, empty.log_format, empty.otlp_endpoint) == (0, "text", None)


@pytest.mark.parametrize(("written", "home"), [("~/b", "/h/b"), ("~", "/h"), ("/abs", "/abs")])
def test_home_is_expanded(written: str, home: str) -> None:
    assert Settings.from_environ({"HOME": "/h", "BUTLERS_HOME": written}).home == Path(home)


def test_a_relative_home_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Settings.from_environ({"BUTLERS_HOME": "data"}).home == tmp_path / "data"


def test_home_of_an_unknown_user_is_rejected() -> None:
    with pytest.raises(ConfigInvalid, match="BUTLERS_HOME"):
        Settings.from_environ({"BUTLERS_HOME": "~no-such-user-here/x"})


@pytest.mark.parametrize("written", ["x", "0", "-1", "nan", "inf"])
def test_a_test_pace_that_is_no_number_above_zero_names_the_variable(written: str) -> None:
    with pytest.raises(ConfigInvalid, match="BUTLERS_TEST_PACE") as caught:
        Settings.from_environ({"BUTLERS_TEST_PACE": written})
    assert caught.value.key == "BUTLERS_TEST_PACE"
    assert caught.value.hint


@pytest.mark.parametrize("written", ["ten", "1.5", "0x10", "9" * 5000])
def test_a_port_offset_that_is_no_integer_names_the_variable(written: str) -> None:
    with pytest.raises(ConfigInvalid, match="BUTLERS_PORT_OFFSET") as caught:
        Settings.from_environ({"BUTLERS_PORT_OFFSET": written})
    assert caught.value.key == "BUTLERS_PORT_OFFSET"
    assert caught.value.hint


def test_an_unknown_log_format_names_the_variable() -> None:
    with pytest.raises(ConfigInvalid, match=r"BUTLERS_LOG.*'xml'") as caught:
        Settings.from_environ({"BUTLERS_LOG": "xml"})
    assert caught.value.key == "BUTLERS_LOG"


def test_the_repr_has_no_secrets() -> None:
    environ = {
        "BUTLERS_MASTER_KEY": "hush-1",
        "DATABASE_URL": "postgresql://u:hush-2@h/d",
        "ANTHROPIC_API_KEY": "hush-3",
    }
    assert "hush" not in repr(Settings.from_environ(environ))


def test_settings_are_a_read_only_snapshot() -> None:
    environ = {"HOME": "/h", "TOKEN": "one"}
    settings = Settings.from_environ(environ)
    environ["TOKEN"] = "two"
    assert settings.environ["TOKEN"] == "one"
    with pytest.raises(TypeError):
        settings.environ["TOKEN"] = "three"  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        settings.port_offset = 1  # type: ignore[misc]


def test_without_a_mapping_the_process_environment_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUTLERS_HOME", str(tmp_path))
    assert Settings.from_environ().home == tmp_path


def test_importing_settings_does_not_import_pydantic() -> None:
    code = "import sys, butlers.config.settings; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def _reads_environment(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr in ("environ", "getenv", "environb")
        and (isinstance(node.value, ast.Name) and node.value.id == "os")
    )


def test_no_other_file_reads_the_environment() -> None:
    """But the scripts of built-in skills, which are programs of their own: theirs is what they are given."""
    source = Path(__file__).parents[3] / "src"
    readers = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if "built_in" not in path.parts
        and any(_reads_environment(node) for node in ast.walk(ast.parse(path.read_bytes())))
    }
    assert readers == {"butlers/config/settings.py"}
