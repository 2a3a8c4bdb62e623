"""Access tokens for mailboxes that do not accept passwords: fetched with the stored refresh token."""

from __future__ import annotations

from dataclasses import dataclass

from butlers.channels.base import ReadSecret
from butlers.channels.email.config import MailAccount
from butlers.domain.errors import CredentialRefused
from butlers.secrets.credentials import CredentialMissing
from butlers.wire.oauth import AccessTokens, OAuthClient


@dataclass(frozen=True, slots=True)
class MailLogin:
    """Credential for a mail server: a password, or an access token."""

    user: str
    secret: str
    is_token: bool

    @property
    def xoauth2(self) -> str:
        """The initial answer of the mechanism XOAUTH2, before base64."""
        return f"user={self.user}\x01auth=Bearer {self.secret}\x01\x01"


class LoginSource:
    """Gives the login of one mailbox, and keeps an access token until shortly before its end."""

    def __init__(self, account: MailAccount, secret: ReadSecret) -> None:
        self._account = account
        self._secret = secret
        self._tokens = AccessTokens()

    async def current(self) -> MailLogin:
        """Return the login. Raises CredentialRefused if the provider does not renew the token."""
        try:
            stored = await self._secret(self._account.secret)
        except CredentialMissing as error:
            raise CredentialRefused(error.message, hint=error.hint) from error
        if self._account.oauth is None:
            return MailLogin(self._account.login, stored, is_token=False)
        token = await self._tokens.current(await self._client(), stored)
        return MailLogin(self._account.login, token, is_token=True)

    async def _client(self) -> OAuthClient:
        oauth = self._account.oauth
        assert oauth is not None
        secret = await self._secret(oauth.client_secret) if oauth.client_secret else None
        return OAuthClient(oauth.token_url, oauth.client_id, secret, "butlers connect email")
