"""Connections of the server, shared by the butlers of a fleet."""

from __future__ import annotations

import pytest

from butlers.db.database import POOL_SIZE, Login
from butlers.db.server import SMALLEST_POOL, choose_pool_size
from butlers.domain.errors import ProvisioningError


@pytest.mark.parametrize("butlers", [1, 7, 24])
async def test_server_has_full_pools_for_two_dozen_butlers(admin: Login, butlers: int) -> None:
    assert await choose_pool_size(admin, butlers) == POOL_SIZE


async def test_pools_of_a_large_fleet_are_smaller(admin: Login) -> None:
    assert SMALLEST_POOL <= await choose_pool_size(admin, 50) < POOL_SIZE


async def test_fleet_that_is_too_large_for_the_server_is_refused(admin: Login) -> None:
    with pytest.raises(ProvisioningError, match="allows 397 connections, and 70 butlers") as error:
        await choose_pool_size(admin, 70)
    assert "max_connections" in (error.value.hint or "")
