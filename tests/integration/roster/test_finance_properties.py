"""Money adds up to the cent over any sequence of operations, undo included."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

import pytest

from butlers.domain.errors import ButlersError
from butlers.wire.client import McpClient
from support.in_process import InProcessButler, MakeButler
from support.properties import SEED_PROPERTY

STEPS = 120
SEEDS = (1, 2)
CATEGORIES = ("food", "housing", "gifts", "travel")


class Ledger:
    """Performs random operations and keeps its own books, in cents."""

    def __init__(self, owner: McpClient, chance: Random) -> None:
        self._owner = owner
        self._chance = chance
        self.entries: dict[str, dict[str, Any]] = {}
        self._history: list[dict[str, dict[str, Any]]] = []

    async def step(self) -> None:
        act = self._chance.choice(
            (self._spend, self._spend, self._earn, self._refund, self._split, self._change,
             self._delete, self._transfer, self._undo)
        )  # fmt: skip
        before = {key: dict(entry) for key, entry in self.entries.items()}
        if await act() and act != self._undo:
            self._history.append(before)

    async def _add(self, kind: str, cents: int, **more: Any) -> dict[str, Any]:
        arguments = {"amount": _text(cents), "description": f"entry {cents}", "kind": kind}
        account = self._chance.choice(("A", "B", None))
        if account:
            arguments["account"] = account
        made: dict[str, Any] = await self._owner.call("transaction_add", {**arguments, **more})
        self.entries[made["id"]] = {
            "kind": made["kind"],
            "cents": cents if made["direction"] == "in" else -cents,
            "category": made["category"],
            "account": account,
            "parts": {},
            "of": more.get("refund_of"),
        }
        return made

    async def _spend(self) -> bool:
        category = self._chance.choice(CATEGORIES)
        await self._add("expense", self._chance.randint(1, 99_999), category=category)
        return True

    async def _earn(self) -> bool:
        await self._add("income", self._chance.randint(1, 500_000), category="income")
        return True

    async def _refund(self) -> bool:
        """Refund a part; more than is left is refused."""
        expense = self._pick("expense")
        if expense is None:
            return False
        done = sum(e["cents"] for e in self.entries.values() if e["of"] == expense)
        left = -self.entries[expense]["cents"] - done
        cents = self._chance.randint(1, max(1, left + 500))
        try:
            await self._add("refund", cents, refund_of=expense)
        except ButlersError:
            assert cents > left
            return False
        assert cents <= left
        return True

    async def _split(self) -> bool:
        expense = self._pick("expense")
        if expense is None:
            return False
        whole = -self.entries[expense]["cents"]
        owed, other = self._chance.randint(1, whole + 50), self._chance.randint(1, whole)
        parts = [
            {"amount": _text(owed), "owed_by": "Bob"},
            {"amount": _text(other), "category": "gifts"},
        ]
        try:
            await self._owner.call("transaction_split", {"id": expense, "parts": parts})
        except ButlersError:
            assert owed + other > whole
            return False
        self.entries[expense]["parts"] = {"owed": owed, "gifts": other}
        return True

    async def _change(self) -> bool:
        key = self._pick("income")
        if key is None:
            return False
        cents = self._chance.randint(1, 500_000)
        if cents == self.entries[key]["cents"]:
            return False
        await self._owner.call("transaction_update", {"id": key, "amount": _text(cents)})
        self.entries[key]["cents"] = cents
        return True

    async def _delete(self) -> bool:
        key = self._pick("expense") or self._pick("income")
        if key is None:
            return False
        await self._owner.call("finance_delete", {"id": key})
        for entry in self.entries.values():
            if entry["of"] == key:
                entry["of"] = None
        del self.entries[key]
        return True

    async def _transfer(self) -> bool:
        cents = self._chance.randint(1, 50_000)
        arguments = {"amount": _text(cents), "from_account": "A", "to_account": "B"}
        made = await self._owner.call("transfer_add", arguments)
        for side, account in zip(made["transactions"], ("A", "B"), strict=True):
            self.entries[side["id"]] = {
                "kind": "transfer",
                "cents": cents if account == "B" else -cents,
                "category": "transfer",
                "account": account,
                "parts": {},
                "of": None,
            }
        return True

    async def _undo(self) -> bool:
        if not self._history:
            return False
        await self._owner.call("undo", {})
        self.entries = self._history.pop()
        return True

    def _pick(self, kind: str) -> str | None:
        found = [key for key, entry in self.entries.items() if entry["kind"] == kind]
        return self._chance.choice(found) if found else None

    def spending(self) -> dict[str, int]:
        """Return the cents by category: own parts of expenses, less refunds."""
        sums: dict[str, int] = {}
        for entry in self.entries.values():
            if entry["kind"] not in ("expense", "refund"):
                continue
            parts = entry["parts"]
            gifts, owed = parts.get("gifts", 0), parts.get("owed", 0)
            own = -entry["cents"] - gifts - owed
            for category, cents in ((entry["category"], own), ("gifts", gifts)):
                sums[category] = sums.get(category, 0) + cents
        return sums

    def balances(self) -> dict[str, int]:
        return {
            name: sum(e["cents"] for e in self.entries.values() if e["account"] == name)
            for name in ("A", "B")
        }


def _text(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02}"


def _cents(text: str) -> int:
    return int(Decimal(text) * 100)


@pytest.mark.parametrize("seed", SEEDS)
async def test_money_adds_up_after_any_operations(
    make_butler: MakeButler, seed: int, record_property: Any
) -> None:
    record_property(SEED_PROPERTY, f"seed {seed}")
    finance: InProcessButler = make_butler("finance")
    await finance.start()
    async with finance.owner() as owner:
        for name in ("A", "B"):
            await owner.call("account_save", {"name": name})
        ledger = Ledger(owner, Random(seed))
        for number in range(STEPS):
            await ledger.step()
            if number % 10 == 9:
                await _check(owner, ledger)


async def _check(owner: McpClient, ledger: Ledger) -> None:
    summary = await owner.call("spending_summary", {"period": "all"})
    expected = ledger.spending()
    assert _cents(summary["total"]) == sum(expected.values())
    groups = {name: _cents(amount) for name, amount in summary["groups"].items()}
    assert {n: c for n, c in groups.items() if c} == {n: c for n, c in expected.items() if c}
    accounts = (await owner.call("account_list", {}))["accounts"]
    assert {a["name"]: _cents(a["balance"]) for a in accounts} == ledger.balances()
