from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from butlers.config.butler import ButlerConfig, ButlerKind, DatabaseConfig, load_butler_config
from butlers.config.settings import Settings
from butlers.domain.errors import (
    ConfigError,
    ConfigInvalid,
    ConfigMissing,
    ConfigSyntaxError,
    UnresolvedVariables,
)

Load = Callable[..., ButlerConfig]

MINIMAL = '[butler]\nname = "minimal"\nport = 8100\n'
FULL = """\
[butler]
name = "health"
description = "Looks after your health"
port = 40103

[butler.db]
name = "butler_wellness"

[[butler.schedule]]
name = "morning"
cron = "0 7 * * *"
prompt = "Say good morning"

[[butler.schedule]]
name = "evening"
cron = "0 21 * * *"
prompt = "Say good night"

[modules.email]
address = "me@example.org"

[modules.calendar]
provider = "google"
conflicts.policy = "suggest"
"""


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def _load(text: str | bytes, **environ: str) -> ButlerConfig:
        raw = text.encode() if isinstance(text, str) else text
        (tmp_path / "butler.toml").write_bytes(raw)
        return load_butler_config(
            tmp_path, Settings.from_environ({"BUTLERS_HOME": "/home/b", **environ})
        )

    return _load


def butler(extra: str = "", *, name: str = "health", port: int = 40103) -> str:
    return f'[butler]\nname = "{name}"\nport = {port}\n{extra}'


# -- what loads ------------------------------------------------------------------------------------


@pytest.mark.scenario("S002-01")
def test_a_full_config_loads(load: Load, tmp_path: Path) -> None:
    config = load(FULL)
    assert config.name == "health"
    assert config.description == "Looks after your health"
    assert config.port == 40103
    assert config.db == DatabaseConfig("butler_wellness")
    assert [(s.name, s.cron, s.prompt) for s in config.schedules] == [
        ("morning", "0 7 * * *", "Say good morning"),
        ("evening", "0 21 * * *", "Say good night"),
    ]
    assert config.modules == {
        "email": {"address": "me@example.org"},
        "calendar": {"provider": "google", "conflicts": {"policy": "suggest"}},
    }
    assert config.directory == tmp_path


@pytest.mark.scenario("S002-02")
def test_a_minimal_config_has_defaults(load: Load) -> None:
    config = load(MINIMAL)
    assert (config.name, config.port) == ("minimal", 8100)
    assert config.db.name == "butler_minimal"
    assert config.db.schema is None
    assert config.schedules == ()
    assert config.modules == {}
    assert config.timezone == "UTC"
    assert config.strict_modules is False
    assert config.switchboard is None
    assert config.shutdown.timeout_s == 30
    assert (config.buffer.queue_capacity, config.buffer.worker_count) == (100, 4)
    assert (config.buffer.scanner_interval_s, config.buffer.scanner_grace_s) == (30, 10)
    assert (config.buffer.scanner_batch_size, config.buffer.max_consecutive_same_tier) == (50, 10)
    assert (config.scheduler.tick_interval_s, config.scheduler.heartbeat_interval_s) == (60, 120)
    assert config.storage.blob_dir == Path("/home/b/data/blobs")
    assert (config.skills.packs, config.skills.disclosure) == ((), "full")
    assert (config.skills.allow_soul_edit, config.skills.reflexes) == (False, True)
    assert (config.budget.daily_usd, config.budget.daily_tokens) == (None, None)
    assert config.logging.level == "info"


@pytest.mark.scenario("S001-36")
def test_identity(load: Load) -> None:
    config = load(butler('description = "Keeps you well"'))
    assert (config.name, config.port, config.description) == ("health", 40103, "Keeps you well")


@pytest.mark.parametrize("runtime", ["codex", "claude-code", "gemini", "reflex", "auto"])
def test_both_runtime_sections_become_one(load: Load, runtime: str) -> None:
    config = load(
        butler(
            '[butler.runtime]\nmodel = "opus"\nmax_concurrent_sessions = 3\nargs = ["-v"]\n'
            f'access = "full"\nwarm = 2\n[runtime]\ntype = "{runtime}"'
        )
    )
    assert (config.runtime.type, config.runtime.model) == (runtime, "opus")
    assert (config.runtime.max_concurrent_sessions, config.runtime.args) == (3, ("-v",))
    assert (config.runtime.access, config.runtime.warm) == ("full", 2)


def test_runtime_defaults(load: Load) -> None:
    runtime = load(MINIMAL).runtime
    assert (runtime.type, runtime.model, runtime.args, runtime.warm) == ("auto", None, (), 0)
    assert (runtime.max_concurrent_sessions, runtime.max_queued, runtime.timeout_s) == (1, 100, 300)
    assert runtime.access == "workspace"
    assert (runtime.schedule_access, runtime.routed_access) == ("sealed", "sealed")


def test_modules_are_free_form(load: Load) -> None:
    config = load(
        butler(
            '[modules.telegram.bot]\ntoken_env = "T"\n[modules.memory]\n'
            "consolidation.interval_hours = 24\n[modules.health]\n"
        )
    )
    assert config.modules == {
        "telegram": {"bot": {"token_env": "T"}},
        "memory": {"consolidation": {"interval_hours": 24}},
        "health": {},
    }


def test_both_kinds_of_schedule(load: Load) -> None:
    prompt, job = load(
        butler(
            '[[butler.schedule]]\nname = "a"\ncron = "* * * * *"\ndispatch_mode = "prompt"\n'
            'prompt = "go"\ntimezone = "Europe/Berlin"\ncheck = "anything_new"\n'
            'missed = "once"\nmissed_within_s = 3600\n'
            '[[butler.schedule]]\nname = "b"\ncron = "* * * * *"\ndispatch_mode = "job"\n'
            'job_name = "sweep"\njob_args = { days = 3, kinds = ["x"] }\n'
        )
    ).schedules
    assert (prompt.dispatch_mode, prompt.prompt, prompt.job_name) == ("prompt", "go", None)
    assert (prompt.timezone, prompt.check) == ("Europe/Berlin", "anything_new")
    assert (prompt.missed, prompt.missed_within_s) == ("once", 3600)
    assert (job.dispatch_mode, job.job_name, job.prompt) == ("job", "sweep", None)
    assert job.job_args == {"days": 3, "kinds": ("x",)}
    assert (job.missed, job.missed_within_s) == ("skip", None)


def test_other_sections_are_read(load: Load) -> None:
    config = load(
        butler(
            'timezone = "Asia/Tokyo"\nstrict_modules = true\n'
            '[butler.env]\nrequired = ["A"]\noptional = ["B_2"]\n'
            "[butler.budget]\ndaily_usd = 1.10\ndaily_tokens = 5\n"
            '[butler.logging]\nlevel = "DEBUG"\n[butler.storage]\nblob_dir = "/srv/blobs"\n'
            "[butler.scheduler]\ntick_interval_s = 5\n[butler.shutdown]\ntimeout_s = 7\n"
            '[skills]\npacks = ["p"]\ndisclosure = "summary"\nallow_soul_edit = true\n'
            "reflexes = false\n[buffer]\nworker_count = 2\n"
        )
    )
    assert (config.timezone, config.strict_modules) == ("Asia/Tokyo", True)
    assert (config.env.required, config.env.optional) == (("A",), ("B_2",))
    assert (config.budget.daily_usd, config.budget.daily_tokens) == (Decimal("1.1"), 5)
    assert (config.logging.level, config.storage.blob_dir) == ("debug", Path("/srv/blobs"))
    assert (config.scheduler.tick_interval_s, config.shutdown.timeout_s) == (5, 7)
    assert (config.skills.packs, config.skills.disclosure) == (("p",), "summary")
    assert (config.skills.allow_soul_edit, config.skills.reflexes) == (True, False)
    assert config.buffer.worker_count == 2


def test_the_old_shutdown_key_is_an_alias(load: Load) -> None:
    assert load(butler("shutdown_timeout_s = 12")).shutdown.timeout_s == 12
    with pytest.raises(ConfigInvalid, match=r"shutdown_timeout_s.*also set"):
        load(butler("shutdown_timeout_s = 12\n[butler.shutdown]\ntimeout_s = 12"))


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("switchboard", ButlerKind.SWITCHBOARD),
        ("messenger", ButlerKind.MESSENGER),
        ("domain", ButlerKind.DOMAIN),
    ],
)
def test_role_follows_the_name(load: Load, name: str, role: ButlerKind) -> None:
    assert load(butler(name=name)).role is role


def test_a_byte_order_mark_and_windows_line_ends(load: Load) -> None:
    text = "\ufeff" + MINIMAL.replace("\n", "\r\n")
    assert load(text).name == "minimal"


def test_a_relative_directory_becomes_absolute(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(MINIMAL)
    monkeypatch.chdir(tmp_path)
    assert load_butler_config(Path(), Settings.from_environ({})).directory == tmp_path


# -- immutable -------------------------------------------------------------------------------------


def test_config_is_immutable(load: Load) -> None:
    config = load(butler("[modules.a]\nlist = [{ x = 1 }]\n[modules.a.b]\nc = 1\n"))
    with pytest.raises(ValidationError):
        config.port = 1  # type: ignore[misc]
    module = config.modules["a"]
    with pytest.raises(TypeError, match="read-only"):
        module["b"]["c"] = 2
    with pytest.raises(TypeError):
        module["list"][0]["x"] = 2
    with pytest.raises(TypeError):
        config.modules.update({})  # type: ignore[attr-defined]
    assert module == {"list": ({"x": 1},), "b": {"c": 1}}


def test_frozen_tables_can_be_copied_and_serialized(load: Load) -> None:
    modules = load(butler("[modules.a]\nlist = [{ x = 1 }]\n")).modules
    assert copy.deepcopy(modules) == pickle.loads(pickle.dumps(modules)) == modules
    assert json.loads(json.dumps(modules)) == {"a": {"list": [{"x": 1}]}}


def test_repr_hides_module_credentials(load: Load) -> None:
    config = load(butler('[modules.a]\ntoken = "${T}"\n'), T="hush")
    assert config.modules["a"]["token"] == "hush"
    assert "hush" not in repr(config)


# -- database --------------------------------------------------------------------------------------


def test_a_shared_database_with_a_schema(load: Load) -> None:
    config = load(butler('[butler.db]\nname = "butlers"\nschema = "health"\n'))
    assert config.db == DatabaseConfig(name="butlers", schema="health")


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("", DatabaseConfig("butler_my_notes")),
        ('schema = "notes"', DatabaseConfig("butlers", "notes")),
        ('name = "x"\nschema = "notes"', DatabaseConfig("x", "notes")),
        ('name = "x"', DatabaseConfig("x")),
    ],
)
def test_database_name_defaults(load: Load, section: str, expected: DatabaseConfig) -> None:
    assert load(butler(f"[butler.db]\n{section}", name="my-notes")).db == expected


def test_the_shared_database_needs_a_schema(load: Load) -> None:
    with pytest.raises(ConfigInvalid, match=r"butler\.db\.name.*no schema") as caught:
        load(butler('[butler.db]\nname = "butlers"'))
    assert caught.value.line == 5
    assert "schema" in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["Notes", "1a", "a-b", "a b", "", "a" * 64, 'a\\"; drop', "ä"])
@pytest.mark.parametrize("key", ["name", "schema"])
def test_database_names_are_identifiers(load: Load, key: str, name: str) -> None:
    with pytest.raises(ConfigInvalid, match=f"butler.db.{key}"):
        load(butler(f'[butler.db]\n{key} = "{name}"'))


@pytest.mark.parametrize("schema", ["shared", "public", "pg_catalog", "pg_x", "information_schema"])
def test_reserved_schemas_are_refused(load: Load, schema: str) -> None:
    with pytest.raises(ConfigInvalid, match=schema):
        load(butler(f'[butler.db]\nschema = "{schema}"'))


# -- ports and the Switchboard ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("port", "offset", "expected"),
    [(0, "500", 0), (40103, "500", 40603), (40103, "-40102", 1), (40103, "", 40103)],
)
def test_the_offset_is_added_to_the_port(load: Load, port: int, offset: str, expected: int) -> None:
    assert load(butler(port=port), BUTLERS_PORT_OFFSET=offset).port == expected


@pytest.mark.parametrize("offset", ["-40103", "30000", "-50000"])
def test_a_shifted_port_must_be_a_port(load: Load, offset: str) -> None:
    with pytest.raises(ConfigInvalid, match="BUTLERS_PORT_OFFSET") as caught:
        load(butler(), BUTLERS_PORT_OFFSET=offset)
    assert (caught.value.key, caught.value.line) == ("butler.port", 3)


@pytest.mark.parametrize("port", ["-1", "65536", "true", "1.5", '"x"', "[]", "1979-05-27"])
def test_invalid_port_is_rejected(load: Load, port: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"butler\.port: must be"):
        load(f'[butler]\nname = "a"\nport = {port}')


@pytest.mark.parametrize(
    ("written", "offset", "expected"),
    [
        ("", "0", "http://127.0.0.1:40100/mcp"),
        ("", "7", "http://127.0.0.1:40107/mcp"),
        ('url = "http://localhost:5/mcp"', "7", "http://localhost:12/mcp"),
        ('url = "http://[::1]:5/mcp?a=b"', "7", "http://[::1]:12/mcp?a=b"),
        ('url = "http://u:p@127.0.0.1:5/"', "7", "http://u:p@127.0.0.1:12/"),
        ('url = "http://127.0.0.1/mcp"', "7", "http://127.0.0.1/mcp"),
        ('url = "https://board.example:5/mcp"', "7", "https://board.example:5/mcp"),
    ],
)
def test_the_url_of_the_switchboard(load: Load, written: str, offset: str, expected: str) -> None:
    config = load(butler(f"[butler.switchboard]\n{written}"), BUTLERS_PORT_OFFSET=offset)
    assert config.switchboard is not None
    assert config.switchboard.url == expected


@pytest.mark.parametrize(
    "url", ["", "board", "ftp://x", "http://", "http://x:0/", "http://x:99999/", "http://[::1/"]
)
def test_invalid_url_is_rejected(load: Load, url: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"butler\.switchboard\.url"):
        load(butler(f'[butler.switchboard]\nurl = "{url}"'))


def test_registration_keys_are_read(load: Load) -> None:
    board = load(
        butler(
            "[butler.switchboard]\nadvertise = false\nliveness_ttl_s = 60\n"
            'route_contract_min = "route.v1"\nroute_contract_max = 2\n'
        )
    ).switchboard
    assert board is not None
    assert (board.advertise, board.liveness_ttl_s) == (False, 60)
    assert (board.route_contract_min, board.route_contract_max) == (1, 2)


@pytest.mark.parametrize("contract", ['"route.v0"', '"route.vx"', '"v1"', "0", "true"])
def test_invalid_route_contract_is_rejected(load: Load, contract: str) -> None:
    with pytest.raises(ConfigInvalid, match="route_contract_max"):
        load(butler(f"[butler.switchboard]\nroute_contract_max = {contract}"))


def test_the_contract_range_must_not_be_empty(load: Load) -> None:
    with pytest.raises(ConfigInvalid, match="route_contract_min"):
        load(butler("[butler.switchboard]\nroute_contract_min = 2"))


def test_the_switchboard_does_not_register_with_itself(load: Load) -> None:
    with pytest.raises(ConfigInvalid, match=r"butler\.switchboard") as caught:
        load(butler("\n[butler.switchboard]\nadvertise = true", name="switchboard"))
    assert caught.value.line == 5
    assert caught.value.hint == "remove [butler.switchboard]"


# -- missing and broken files ----------------------------------------------------------------------


def test_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigMissing, match="the folder does not exist") as caught:
        load_butler_config(tmp_path / "notes", Settings.from_environ({}))
    assert caught.value.path == tmp_path / "notes" / "butler.toml"
    assert "butlers init notes" in (caught.value.hint or "")


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigMissing, match="the file does not exist") as caught:
        load_butler_config(tmp_path, Settings.from_environ({}))
    assert "butlers init" in (caught.value.hint or "")


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "butler.toml").mkdir()
    with pytest.raises(ConfigInvalid, match="cannot be read"):
        load_butler_config(tmp_path, Settings.from_environ({}))


@pytest.mark.scenario("S002-04")
@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ('[butler]\nname "x"', 2, 6, "Expected '=' after a key"),
        ("[butler\nport = 1", 1, 8, "Expected ']'"),
        ("[butler]\nport = 1\nport = 2\n", 3, 9, "Cannot overwrite a value"),
        ('[butler]\nname = "x', 2, 10, "Unterminated string"),
        ("[butler]\n\nlist = [1,\n", 3, 11, "Invalid value"),
    ],
)
def test_broken_toml_says_what_and_where(
    load: Load, tmp_path: Path, text: str, line: int, column: int, said: str
) -> None:
    with pytest.raises(ConfigSyntaxError) as caught:
        load(text)
    assert said in caught.value.message
    assert f"butler.toml:{line}: column {column}:" in caught.value.message
    assert (caught.value.path, caught.value.line) == (tmp_path / "butler.toml", line)
    assert caught.value.hint


def test_bytes_that_are_not_utf8(load: Load) -> None:
    with pytest.raises(ConfigSyntaxError, match=r":2: column 9: expected UTF-8.*0xff") as caught:
        load(b'[butler]\nname = "\xff"')
    assert caught.value.line == 2


@pytest.mark.parametrize(
    "text", ["x = " + "[" * 5000, "x = " + "9" * 5000, ".".join("a" * 3000) + " = 1"]
)
def test_hostile_toml_is_a_config_error(load: Load, text: str) -> None:
    with pytest.raises(ConfigError):
        load(text)


def test_nesting_has_a_limit(load: Load) -> None:
    assert load(MINIMAL + "[modules]\n" + ".".join("a" * 50) + ".b = 1")
    with pytest.raises(ConfigInvalid, match="levels of nesting") as caught:
        load(MINIMAL + "[modules]\n" + ".".join("a" * 100) + " = 1")
    assert caught.value.line == 4


# -- missing, unknown and wrong keys ---------------------------------------------------------------


def test_a_missing_name(load: Load) -> None:
    with pytest.raises(ConfigInvalid, match=r":2: butler\.name: name is required") as caught:
        load("\n[butler]\nport = 1")
    assert (caught.value.key, caught.value.line) == ("butler.name", 2)
    assert "[butler]" in (caught.value.hint or "")


@pytest.mark.scenario("S002-06")
def test_a_missing_port(load: Load) -> None:
    with pytest.raises(ConfigInvalid, match=r"butler\.port: port is required"):
        load('[butler]\nname = "a"')


@pytest.mark.parametrize("text", ["", "[butler]", "[modules.x]"])
def test_all_missing_keys_are_named(load: Load, text: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load(text)
    assert "name is required" in caught.value.message
    assert "port is required" in caught.value.message


@pytest.mark.parametrize(
    ("extra", "key", "line", "near"),
    [
        ("prot = 1", "butler.prot", 4, "port"),
        ("[butler.scheduel]", "butler.scheduel", 4, "schedule"),
        ("[[butler.shedule]]", "butler.shedule", 4, "schedule"),
        ("[butler.runtime]\nmodle = 'x'", "butler.runtime.modle", 5, "model"),
        ("[butler.runtime]\ntype = 'codex'", "butler.runtime.type", 5, "runtime.type"),
        ("[runtime]\nmodel = 'x'", "runtime.model", 5, "butler.runtime.model"),
        ("[scheduler]", "scheduler", 4, "butler.scheduler"),
        ("[butler.buffer]", "butler.buffer", 4, "buffer"),
        ("[module.email]", "module", 4, "modules"),
        ("[butler.db]\nscheme = 'x'", "butler.db.scheme", 5, "schema"),
        (
            "[[butler.schedule]]\nname = 'a'\ncron = '*'\npromt = 'x'\nprompt = 'x'",
            "butler.schedule[0].promt",
            7,
            "prompt",
        ),
        ("zzz = 1", "butler.zzz", 4, None),
    ],
)
def test_an_unknown_key(
    load: Load, tmp_path: Path, extra: str, key: str, line: int, near: str | None
) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load(butler(extra))
    asked = f"; did you mean '{near}'?" if near else ""
    file = tmp_path / "butler.toml"
    assert caught.value.message == f"{file}:{line}: unknown key '{key}'{asked}"
    assert (caught.value.key, caught.value.line) == (key, line)


def test_the_hint_for_an_unknown_key_lists_the_known(load: Load) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load(butler("[butler.env]\nneeded = []"))
    assert caught.value.hint == "[butler.env] may have: required, optional"


def test_several_problems_are_one_error_in_the_order_of_the_file(load: Load) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load(
            '[buffer]\nworkers = 1\n[butler]\nname = "Not Good"\nport = 70000\n'
            '[butler.runtime]\naccess = "open"\n[modules]\nx = 1\n'
        )
    lines = caught.value.message.splitlines()
    assert [line.split("butler.toml")[1].split(" ")[0] for line in lines] == [
        ":2:",
        ":4:",
        ":5:",
        ":7:",
        ":9:",
    ]
    assert (caught.value.key, caught.value.line) == ("buffer.workers", 2)
    assert "butler.runtime.access: must be 'workspace', 'sealed' or 'full'" in lines[3]
    assert lines[4].endswith("modules.x: must be a table")


@pytest.mark.parametrize("name", ["", "Health", "1a", "a_b", "a b", "a" * 41, "-a", "a\\n"])
def test_invalid_butler_name_is_rejected(load: Load, name: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"butler\.name"):
        load(butler(name=name))


@pytest.mark.parametrize("zone", ["Mars/Base", "", "/etc/passwd", "../UTC", "Europe", "a\\u0000"])
def test_invalid_time_zone_is_rejected(load: Load, zone: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"butler\.timezone.*not a time zone"):
        load(butler(f'timezone = "{zone}"'))


@pytest.mark.parametrize(
    ("extra", "key"),
    [
        ("[butler.runtime]\nmax_concurrent_sessions = 0", "butler.runtime.max_concurrent_sessions"),
        ("[butler.runtime]\ntimeout_s = 0", "butler.runtime.timeout_s"),
        ("[butler.runtime]\ntimeout_s = nan", "butler.runtime.timeout_s"),
        ("[butler.runtime]\ntimeout_s = inf", "butler.runtime.timeout_s"),
        ("[butler.runtime]\nargs = 'x'", "butler.runtime.args"),
        ("[butler.budget]\ndaily_usd = -1", "butler.budget.daily_usd"),
        ("[butler.budget]\ndaily_usd = nan", "butler.budget.daily_usd"),
        ("[butler.env]\nrequired = ['A B']", "butler.env.required[0]"),
        ("[butler.storage]\nblob_dir = '~/x'", "butler.storage.blob_dir"),
        ("[butler.storage]\nkeep_days = 3", "butler.storage.keep_days"),
        ("[butler.storage]\nkeep_days = -1", "butler.storage.keep_days"),
        ("[butler.logging]\nlevel = 'loud'", "butler.logging.level"),
        ("[runtime]\ntype = 'gpt'", "runtime.type"),
        ("[buffer]\nworker_count = 0", "buffer.worker_count"),
        ("[skills]\ndisclosure = 'none'", "skills.disclosure"),
    ],
)
def test_values_that_are_not_allowed(load: Load, extra: str, key: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load(butler(extra))
    assert caught.value.key == key
    assert caught.value.line == 5


# -- schedules -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ("cron = '*'\nprompt = 'x'", "butler.schedule[0].name"),
        ("name = 'a'\nprompt = 'x'", "butler.schedule[0].cron"),
        ("name = 'a'\ncron = '*'", "butler.schedule[0].prompt"),
        ("name = 'a'\ncron = '*'\nprompt = ' '", "butler.schedule[0].prompt"),
        ("name = 'a'\ncron = '*'\ndispatch_mode = 'job'", "butler.schedule[0].job_name"),
        (
            "name = 'a'\ncron = '*'\ndispatch_mode = 'job'\njob_name = 'j'\nprompt = 'x'",
            "butler.schedule[0].prompt",
        ),
        ("name = 'a'\ncron = '*'\nprompt = 'x'\njob_name = 'j'", "butler.schedule[0].job_name"),
        ("name = 'a'\ncron = '*'\nprompt = 'x'\nmissed = 'no'", "butler.schedule[0].missed"),
    ],
)
def test_a_schedule_that_is_not_allowed(load: Load, entry: str, key: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load(butler(f"[[butler.schedule]]\n{entry}"))
    assert caught.value.key == key


def test_duplicate_schedule_name_is_rejected(load: Load) -> None:
    entry = "[[butler.schedule]]\nname = 'a'\ncron = '*'\nprompt = 'x'\n"
    with pytest.raises(ConfigInvalid, match="two schedules are named 'a'") as caught:
        load(butler(entry * 2))
    assert (caught.value.key, caught.value.line) == ("butler.schedule[1].name", 9)


# -- ${VAR} ----------------------------------------------------------------------------------------


def test_variables_are_filled_in_everywhere(load: Load) -> None:
    config = load(
        '[butler]\nname = "${NAME}"\nport = "${PORT}"\n[butler.runtime]\nargs = ["a-${X}-${X}"]\n'
        '[modules.m]\ndeep = [{ token = "${X}" }]\nliteral = "$${X} $X ${"\n',
        NAME="health",
        PORT="40103",
        X="${NAME}",
    )
    assert (config.name, config.port) == ("health", 40103)
    assert config.runtime.args == ("a-${NAME}-${NAME}",)
    assert config.modules["m"] == {"deep": ({"token": "${NAME}"},), "literal": "${X} $X ${"}


def test_all_unresolved_variables_are_listed(load: Load, tmp_path: Path) -> None:
    with pytest.raises(UnresolvedVariables) as caught:
        load(
            butler(
                'description = "${ONE}"\n[modules.telegram]\ntoken = "${TELEGRAM_TOKN}"\n'
                'ids = ["x", "${EMPTY}"]\n'
            ),
            TELEGRAM_TOKEN="hush",
            EMPTY="",
        )
    file = tmp_path / "butler.toml"
    assert caught.value.message.splitlines() == [
        f"{file}:4: butler.description: ${{ONE}} is not set",
        f"{file}:6: modules.telegram.token: ${{TELEGRAM_TOKN}} is not set",
        f"{file}:7: modules.telegram.ids[1]: ${{EMPTY}} is not set",
    ]
    assert (caught.value.key, caught.value.line) == ("butler.description", 4)
    hint = caught.value.hint or ""
    assert "set ONE" in hint
    assert "set TELEGRAM_TOKN (or did you mean TELEGRAM_TOKEN" in hint
    assert "hush" not in hint


@pytest.mark.parametrize("written", ["${A:-b}", "${}", "${A B}"])
def test_invalid_variable_reference_is_rejected(load: Load, written: str) -> None:
    with pytest.raises(UnresolvedVariables, match="not the name of a variable"):
        load(butler(f'description = "{written}"'))


# -- anything at all -------------------------------------------------------------------------------

_LINES = st.sampled_from(
    [
        "[butler]",
        'name = "a"',
        "port = 1",
        "port = 1e400",
        "port = 0x7fffffffffffffffffffffff",
        "[butler.db]",
        'schema = "\\u0000"',
        'name = "${HOME}"',
        'name = "${"',
        "[[butler.schedule]]",
        "[butler.schedule]",
        "schedule = [1, {}]",
        "[butler.switchboard]",
        'url = "http://[::1%25]:1/"',
        'url = "http://localhost:1/\\u0000"',
        "url = 1979-05-27T07:32:00Z",
        "[modules]",
        "[modules.x]",
        "a.b.c = {}",
        '"" = nan',
        "timezone = '\\\\'",
        "timezone = 'posixrules/../UTC'",
        "daily_usd = 1e308",
        "daily_usd = '1e999999999'",
        '[butler.storage]\nblob_dir = "\\u0000"',
        "x = '''",
        "{",
    ]
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.binary(),
        st.text().map(str.encode),
        st.lists(_LINES, max_size=12).map(lambda lines: "\n".join(lines).encode()),
        st.lists(_LINES, max_size=8).map(lambda lines: (MINIMAL + "\n".join(lines)).encode()),
    )
)
@example(MINIMAL.encode())
@example(b"\xef\xbb\xbf")
@example(b"a = 1\r")
def test_any_bytes_give_a_config_or_a_config_error(load: Load, raw: bytes) -> None:
    with suppress(ConfigError):
        assert isinstance(load(raw), ButlerConfig)
