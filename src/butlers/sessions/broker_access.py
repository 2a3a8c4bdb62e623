"""A session's access to its model through the key broker: its token, its environment and its usage.

A session's environment has the variables of the providers' keys, with the session's own token as their value.
The token is made when the CLI starts; one of a warm process opens nothing until its prompt comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from uuid import UUID

from butlers.broker.grants import Credentials, DayLimit, Grant, SessionLimits, TokenTerms
from butlers.broker.ledger import Total
from butlers.broker.providers import BY_RUNTIME, PROVIDERS
from butlers.broker.server import Broker
from butlers.config.butler import ButlerConfig, RuntimeConfig
from butlers.domain.session import Access, Outcome, SessionResult
from butlers.runtimes.base import PROXIES

PLACEHOLDER = "session-token-of-the-key-broker"
LAST_REQUEST_S = 2.0  # for the request that a killed CLI left behind
# Outcomes that the CLI could not tell from an outage of its model.
UNEXPLAINED = (Outcome.CRASHED, Outcome.REJECTED, Outcome.TIMED_OUT, Outcome.NO_ANSWER)
NOT_SERVING = "the key broker is not running"
_MODEL_ARGUMENTS = ("-m", "--model")


@dataclass(frozen=True, slots=True)
class BrokerToken:
    """The token of one process, and the environment that holds it."""

    value: str | None = field(repr=False)  # None: there is no broker
    env: Mapping[str, str] = field(repr=False)


NO_TOKEN = BrokerToken(None, {})


@contextmanager
def reserve_token(broker: Broker | None, env: Mapping[str, str]) -> Iterator[BrokerToken]:
    """Make an unbound token for a process, put it into its environment, and revoke it at the end."""
    if broker is None:
        yield BrokerToken(None, env)
        return
    token = broker.grants.mint()
    try:
        shown = {name: token if value == PLACEHOLDER else value for name, value in env.items()}
        yield BrokerToken(token, shown)
    finally:
        broker.grants.revoke(token)


class BrokerAccess:
    """Binds the tokens of one butler's sessions, and reads what the sessions used."""

    def __init__(
        self,
        broker: Broker,
        config: ButlerConfig,
        credentials: Credentials,
        days: Sequence[DayLimit],
    ) -> None:
        self.broker = broker
        self._config = config
        self._credentials = credentials
        self._days = tuple(days)
        self._bound: dict[UUID, list[Grant]] = {}

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Replace the providers' keys by the placeholder, and their addresses by the broker's."""
        present = {
            name: provider
            for provider in PROVIDERS.values()
            for name in provider.credentials
            if name in env
        }
        keys = {env[name] for name in present}
        addresses = {one.base_url_variable for one in PROVIDERS.values()}
        return {
            **{
                name: PLACEHOLDER if value in keys else value
                for name, value in env.items()
                if name not in addresses and name.upper() not in PROXIES
            },
            **{one.base_url_variable: self.broker.base_url(one) for one in present.values()},
        }

    def bind(self, token: BrokerToken, session_id: UUID, runtime: str, access: Access) -> None:
        """Let the token stand for this session from now on."""
        if token.value is None or (provider := BY_RUNTIME.get(runtime)) is None:
            return
        config = self._config.runtime
        terms = TokenTerms(
            session=str(session_id),
            butler=self._config.name,
            provider=provider.name,
            credentials=self._credentials,
            expires_at=self.broker.clock.monotonic() + config.timeout_s + LAST_REQUEST_S,
            models=_models(config) if access is Access.SEALED else (),
            limits=SessionLimits(config.max_turns, config.max_tokens, config.max_usd),
            days=self._days,
        )
        grant = self.broker.grants.bind(token.value, terms)
        self._bound.setdefault(session_id, []).append(grant)

    def unavailable(self) -> SessionResult | None:
        """Return the result of a session that cannot start because the broker does not run."""
        if self.broker.is_serving:
            return None
        return SessionResult(Outcome.BROKER_FAILED, "", error=NOT_SERVING)

    async def settle(self, session_id: UUID, result: SessionResult) -> SessionResult:
        """Return the result with the usage that was metered, and with the broker's reason for its end."""
        total = Total()
        grants = self._bound.pop(session_id, [])
        for grant in grants:
            await self.broker.grants.wait_idle(grant, LAST_REQUEST_S)
            total += grant.used
        result = replace(result, usage=total.usage)
        if (
            result.ok and grants and grants[-1].is_cut
        ):  # Gemini CLI takes half an answer for a whole
            return replace(result, outcome=Outcome.MODEL_UNAVAILABLE, error=grants[-1].outage)
        if result.ok or result.outcome is Outcome.CANCELLED:
            return result
        for grant in grants:
            if grant.stopped is not None:
                of_day = grant.day_is_used_up
                outcome = Outcome.OVER_BUDGET if of_day else Outcome.LIMIT_REACHED
                return replace(result, outcome=outcome, error=grant.stopped)
            if grant.failure is not None:
                return replace(result, outcome=Outcome.BROKER_FAILED, error=grant.failure)
        if not self.broker.is_serving:
            return replace(result, outcome=Outcome.BROKER_FAILED, error=NOT_SERVING)
        if grants and grants[-1].outage is not None and result.outcome in UNEXPLAINED:
            error = f"{result.error}; {grants[-1].outage}"
            return replace(result, outcome=Outcome.MODEL_UNAVAILABLE, error=error)
        if result.outcome is Outcome.RATE_LIMITED and grants and (terms := grants[-1].terms):
            pause_s = self.broker.upstreams.pause_s(terms.provider)
            return replace(result, retry_after_s=pause_s or result.retry_after_s)
        return result


def _models(config: RuntimeConfig) -> tuple[str, ...]:
    """Return the models that a sealed session may use: the configured one; any, if none is configured."""
    if config.model is None or any(one.startswith(_MODEL_ARGUMENTS) for one in config.args):
        return ()
    name = config.model.partition("[")[0]  # sonnet[1m] is a model with an option
    return ("opus", "sonnet") if name == "opusplan" else (name,)
