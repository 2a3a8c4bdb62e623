"""Rows and calls of the Finance and Relationship butlers, for the roster benchmark."""

from __future__ import annotations

from benchmarks.domain_cases import AT, NOTE, DomainCase, ToolCase

FINANCE = DomainCase(
    "finance",
    (
        f"""INSERT INTO transactions (id, posted_on, kind, amount, currency, description, category, notes)
        SELECT gen_random_uuid(), ({AT})::date, 'expense', -(n % 5000 + 1), 'EUR', 'shop ' || n,
            CASE WHEN n <= 100 THEN 'food' ELSE 'category ' || n % 50 END, {NOTE}
        FROM generate_series(1, $1) AS n""",
        """INSERT INTO transaction_parts (id, transaction_id, amount, category, owed_by, settled_on)
        SELECT gen_random_uuid(), id, 1, 'gifts', 'Bob', CASE WHEN category <> 'food' THEN posted_on END
        FROM transactions WHERE amount < -1 AND $1::int > 0""",
    ),
    (
        ToolCase("transaction_search"),
        ToolCase("transaction_search", {"text": "c4ca4238"}),
        ToolCase("transaction_search", {"category": "food", "period": "last 28 days"}),
        ToolCase("spending_summary", {"period": "last 28 days"}),
        ToolCase("spending_summary", {"period": "last 28 days", "of": "food"}),
        ToolCase("spending_summary", {"period": "all"}, served=False),
        ToolCase("budget_status"),
        ToolCase("bill_list"),
        ToolCase("duplicate_list", {"period": "last 28 days"}),
        ToolCase("debt_list"),
        ToolCase("account_list"),
    ),
    ("transactions", "transaction_parts", "budgets", "accounts", "bills"),
    (
        """INSERT INTO budgets (id, category, amount, currency, period)
        VALUES (gen_random_uuid(), 'food', 300, 'EUR', 'month')""",
        """INSERT INTO accounts (id, name, kind, currency)
        VALUES (gen_random_uuid(), 'Giro', 'checking', 'EUR')""",
        """INSERT INTO bills (id, kind, payee, amount, currency, category, repeats, first_due, next_due)
        SELECT gen_random_uuid(), 'bill', 'payee ' || n, 10, 'EUR', 'other', 'monthly', current_date,
            current_date
        FROM generate_series(1, 20) AS n""",
    ),
)

RELATIONSHIP = DomainCase(
    "relationship",
    (
        """INSERT INTO people (id, name, company)
        SELECT gen_random_uuid(), 'Person ' || md5(n::text), 'Company ' || n
        FROM generate_series(1, $1) AS n""",
        f"""INSERT INTO interactions (id, person_id, kind, happened_at)
        SELECT gen_random_uuid(), id, 'met', {AT}
        FROM (SELECT id, row_number() OVER (ORDER BY name) AS n FROM people) AS p WHERE $1::int > 0""",
        """INSERT INTO person_dates (id, person_id, label, month, day)
        SELECT gen_random_uuid(), id, 'birthday',
            extract(month FROM current_date + CASE WHEN n <= 20 THEN 3 ELSE 40 + (n % 200)::int END),
            extract(day FROM current_date + CASE WHEN n <= 20 THEN 3 ELSE 40 + (n % 200)::int END)
        FROM (SELECT id, row_number() OVER (ORDER BY name) AS n FROM people) AS p WHERE $1::int > 0""",
        f"""INSERT INTO person_notes (id, person_id, text, noted_on)
        SELECT gen_random_uuid(), id, {NOTE}, current_date
        FROM (SELECT id, row_number() OVER (ORDER BY name) AS n FROM people) AS p WHERE $1::int > 0""",
        """INSERT INTO loans (id, person_id, direction, amount, currency, lent_on, settled_on)
        SELECT gen_random_uuid(), id, 'lent', 10, 'EUR', current_date, CASE WHEN n > 20 THEN current_date END
        FROM (SELECT id, row_number() OVER (ORDER BY name) AS n FROM people) AS p WHERE $1::int > 0""",
    ),
    (
        ToolCase("person_search"),
        ToolCase("person_search", {"query": "c4ca4238"}),
        ToolCase("person_show", {"person": "Person c4ca4238a0b923820dcc509a6f75849b"}),
        ToolCase("date_upcoming", {"within_days": 14}),
        ToolCase("interaction_list"),
        ToolCase(
            "interaction_list",
            {"person": "Person c4ca4238a0b923820dcc509a6f75849b", "limit": 1},
        ),
        ToolCase("loan_list"),
        ToolCase("stay_in_touch_due"),
        ToolCase("gift_list"),
        ToolCase("group_list"),
        ToolCase("person_duplicates", served=False),
    ),
    ("people", "interactions", "person_dates", "person_notes", "loans"),
)
