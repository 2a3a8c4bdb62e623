"""Credentials of modules in a complete daemon: sources, and a missing required one."""

from __future__ import annotations

import pytest

from butlers.daemon.butler import Butler
from butlers.db.database import Login
from butlers.db.provision import Provisioner
from butlers.domain.errors import PhaseFailed
from butlers.domain.redaction import SecretText
from butlers.secrets.credentials import CredentialMissing
from butlers.secrets.master_key import MasterKey
from butlers.secrets.sealed import NewSecret
from butlers.secrets.vault import Vault
from support.postbox_butler import PostboxButler

POSTBOX = {"email": 'address = "postbox@example.org"\npassword_env = "BUTLER_EMAIL_PASSWORD"'}


@pytest.fixture
def own_postbox(postbox: PostboxButler, admin: Login) -> PostboxButler:
    """A postbox butler with its own shared secrets."""
    postbox.provisioner = Provisioner(admin, postbox.key, shared_database=postbox.database_name)
    return postbox


async def password_of(postbox: PostboxButler, **environ: str) -> str | None:
    """Return the email module's password after a start, or None if the module failed."""
    butler = postbox.make_in(**environ)
    await butler.start()
    found = getattr(butler.modules.modules[0], "password", None)
    await butler.stop()
    return found


async def keep(butler: Butler, scope: str, value: str) -> None:
    vault = Vault(
        butler.provisioner, MasterKey.load(butler.settings), {"postbox": butler.config.db.name}
    )
    await vault.put([NewSecret(scope, "EMAIL_PASSWORD", SecretText(value))])


@pytest.mark.scenario("S001-54")
async def test_credential_is_resolved_from_database_then_environment(
    own_postbox: PostboxButler,
) -> None:
    postbox = own_postbox
    postbox.write(POSTBOX)
    assert await password_of(postbox) is None
    assert await password_of(postbox, OTHER_PASSWORD="nobody asked") is None
    assert await password_of(postbox, BUTLER_EMAIL_PASSWORD="of the environment") == (
        "of the environment"
    )
    await keep(postbox.butler, "shared", "of the database")
    assert (
        await password_of(postbox, BUTLER_EMAIL_PASSWORD="of the environment") == "of the database"
    )
    assert await password_of(postbox) == "of the database"

    # A runtime that is asked for by name does not start without its key.
    toml = postbox.directory / "butler.toml"
    toml.write_text(toml.read_text().replace('type = "reflex"', 'type = "claude-code"'))
    butler = postbox.make_in()
    with pytest.raises(PhaseFailed) as failed:
        await butler.start()
    assert failed.value.phase == "validate core credentials"
    assert isinstance(failed.value.__cause__, CredentialMissing)
    assert "ANTHROPIC_API_KEY" in failed.value.message
    assert not hasattr(butler, "mcp")
