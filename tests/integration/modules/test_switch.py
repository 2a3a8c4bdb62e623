"""Enabling and disabling modules: persistent, atomic, effective for dependents."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from butlers.domain.errors import DatabaseUnavailable, NotFound
from butlers.domain.module import ModuleDisabled
from butlers.modules.lifecycle import flag_key
from support.postbox import ModuleHarness

MakeModules = Callable[..., ModuleHarness]


async def test_disabled_module_rejects_its_tools_until_enabled(
    make_modules: MakeModules,
) -> None:
    modules = await make_modules().bring_up()
    modules.ensure_enabled("calendar_add_event")
    state = await modules.set_enabled("calendar", False)
    assert (state.enabled, state.available, state.active) == (False, False, True)
    assert not modules.is_enabled("calendar_add_event")
    with pytest.raises(ModuleDisabled, match="belongs to the module calendar") as refused:
        modules.ensure_enabled("calendar_add_event")
    assert refused.value.code == "module_disabled"
    assert "module.set_enabled" in str(refused.value.hint)
    modules.ensure_enabled("bot_email_read_message")
    modules.ensure_enabled("status")  # no module's
    assert (await modules.set_enabled("calendar", True)).available
    modules.ensure_enabled("calendar_add_event")


async def test_dependents_of_a_disabled_module_are_unavailable(
    make_modules: MakeModules,
) -> None:
    modules = await make_modules().bring_up()
    await modules.set_enabled("email", False)
    calendar = modules.state("calendar")
    assert (calendar.enabled, calendar.blocked_by, calendar.available) == (True, "email", False)
    with pytest.raises(ModuleDisabled, match="because it depends on email") as refused:
        modules.ensure_enabled("calendar_add_event")
    assert '"name": "email"' in str(refused.value.hint)
    await modules.set_enabled("email", True)
    modules.ensure_enabled("calendar_add_event")


async def test_disabled_module_stays_disabled_after_restart(make_modules: MakeModules) -> None:
    first = await make_modules().bring_up()
    await first.set_enabled("email", False)
    await first.stop()
    harness = make_modules()
    second = await harness.bring_up()
    assert [state.enabled for state in second.states()] == [False, True]
    assert second.healthy  # off is not failed
    assert harness.lifecycle == [
        "email started",
        "calendar started",
    ]  # so that it can be switched on
    await second.set_enabled("email", True)
    assert [state.enabled for state in (await make_modules().bring_up()).states()] == [True, True]


async def test_each_change_increments_the_row_version(make_modules: MakeModules) -> None:
    harness = make_modules()
    modules = await harness.bring_up()
    for enabled in (False, True, False):
        await modules.set_enabled("email", enabled)
    async with harness.database.transaction() as connection:
        row = await connection.fetchrow("SELECT * FROM state WHERE key = $1", flag_key("email"))
    assert (row["key"], row["value"], row["version"]) == ("module:email:enabled", False, 3)


@pytest.mark.parametrize("value", ["true", 1, [], {"enabled": True}])
async def test_flag_that_is_not_boolean_means_disabled(
    make_modules: MakeModules, value: object
) -> None:
    harness = make_modules()
    async with harness.database.transaction() as connection:
        await connection.execute(
            "INSERT INTO state (key, value) VALUES ($1, $2)", flag_key("email"), value
        )
    assert not (await harness.bring_up()).state("email").enabled


async def test_flag_that_cannot_be_stored_is_not_applied(make_modules: MakeModules) -> None:
    harness = make_modules()
    modules = await harness.bring_up()
    await harness.database.close()
    with pytest.raises(DatabaseUnavailable):
        await modules.set_enabled("email", False)
    assert modules.state("email").enabled


async def test_unknown_module_suggests_the_nearest_name(make_modules: MakeModules) -> None:
    modules = await make_modules().bring_up()
    with pytest.raises(
        NotFound, match=r"unknown module 'emial'; did you mean 'email'\?"
    ) as refused:
        await modules.set_enabled("emial", False)
    assert refused.value.hint == "modules of postbox: email, calendar"
