"""Accounts, transactions and their parts, recurring payments, budgets, exchange rates and category rules.

Amounts have a fixed scale of three decimals, the most that a currency has, so that a restored row equals
the original one. Money that leaves is negative. Foreign keys are deferrable, because undo restores the
rows of a cascade in the order of the log. ``shown`` is the amount as people read it, for record labels.
"""

from alembic import op

revision = "finance_001"
down_revision = None
branch_labels = ("finance",)


def upgrade() -> None:
    op.execute("""
    CREATE TABLE accounts (
        id               uuid PRIMARY KEY,
        name             text NOT NULL,
        kind             text NOT NULL CHECK (kind IN ('checking', 'savings', 'cash', 'credit', 'other')),
        currency         text NOT NULL,
        opening_balance  numeric(18, 3) NOT NULL DEFAULT 0,
        reference        text,
        is_closed        boolean NOT NULL DEFAULT false,
        notes            text
    )
    """)
    op.execute("CREATE UNIQUE INDEX accounts_name ON accounts (lower(name))")
    op.execute("""
    CREATE TABLE bills (
        id          uuid PRIMARY KEY,
        kind        text NOT NULL CHECK (kind IN ('bill', 'subscription', 'income')),
        payee       text NOT NULL,
        amount      numeric(18, 3) NOT NULL CHECK (amount > 0),
        currency    text NOT NULL,
        category    text NOT NULL,
        repeats     text NOT NULL CHECK (repeats IN ('once', 'weekly', 'biweekly', 'monthly',
                                                     'quarterly', 'half-yearly', 'yearly')),
        first_due   date NOT NULL,
        next_due    date NOT NULL,
        account_id  uuid REFERENCES accounts ON DELETE SET NULL DEFERRABLE,
        status      text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'stopped', 'done')),
        stopped_on  date,
        notes       text,
        shown       text GENERATED ALWAYS AS (amount::numeric(18, 2) || ' ' || currency) STORED
    )
    """)
    op.execute("CREATE INDEX bills_due ON bills (next_due) WHERE status = 'active'")
    op.execute("CREATE UNIQUE INDEX bills_payee ON bills (lower(payee)) WHERE status = 'active'")
    op.execute("""
    CREATE TABLE transactions (
        id           uuid PRIMARY KEY,
        posted_on    date NOT NULL,
        kind         text NOT NULL CHECK (kind IN ('expense', 'income', 'refund', 'transfer')),
        amount       numeric(18, 3) NOT NULL,
        currency     text NOT NULL,
        description  text NOT NULL,
        merchant     text,
        category     text NOT NULL,
        account_id   uuid REFERENCES accounts DEFERRABLE,
        reference    text,
        notes        text,
        refund_of    uuid REFERENCES transactions ON DELETE SET NULL DEFERRABLE,
        transfer_id  uuid,
        bill_id      uuid REFERENCES bills ON DELETE SET NULL DEFERRABLE,
        bill_due     date,
        import_key   text,
        words        tsvector GENERATED ALWAYS AS (to_tsvector('simple',
                         description || ' ' || coalesce(merchant, '') || ' ' || category
                         || ' ' || coalesce(notes, '') || ' ' || coalesce(reference, ''))) STORED,
        shown        text GENERATED ALWAYS AS (abs(amount)::numeric(18, 2) || ' ' || currency) STORED,
        CHECK ((kind = 'expense' AND amount < 0) OR (kind IN ('income', 'refund') AND amount > 0)
               OR (kind = 'transfer' AND amount <> 0 AND transfer_id IS NOT NULL))
    )
    """)
    for statement in (
        "CREATE INDEX transactions_newest ON transactions (posted_on DESC, id DESC)",
        "CREATE INDEX transactions_category ON transactions (category, posted_on DESC, id DESC)",
        "CREATE INDEX transactions_account ON transactions (account_id, posted_on DESC, id DESC)",
        "CREATE INDEX transactions_amount ON transactions (currency, amount, posted_on)",
        "CREATE INDEX transactions_words ON transactions USING gin (words)",
        "CREATE INDEX transactions_bill ON transactions (bill_id) WHERE bill_id IS NOT NULL",
        "CREATE INDEX transactions_refund ON transactions (refund_of) WHERE refund_of IS NOT NULL",
        "CREATE INDEX transactions_transfer ON transactions (transfer_id) WHERE transfer_id IS NOT NULL",
        "CREATE UNIQUE INDEX transactions_import ON transactions (import_key) WHERE import_key IS NOT NULL",
    ):
        op.execute(statement)
    op.execute("""
    CREATE TABLE transaction_parts (
        id              uuid PRIMARY KEY,
        transaction_id  uuid NOT NULL REFERENCES transactions ON DELETE CASCADE DEFERRABLE,
        amount          numeric(18, 3) NOT NULL CHECK (amount > 0),
        category        text NOT NULL,
        owed_by         text,
        settled_on      date,
        shown           text GENERATED ALWAYS AS (amount::numeric(18, 2)::text) STORED,
        CHECK (settled_on IS NULL OR owed_by IS NOT NULL)
    )
    """)
    op.execute("CREATE INDEX transaction_parts_of ON transaction_parts (transaction_id)")
    op.execute(
        "CREATE INDEX transaction_parts_open ON transaction_parts (lower(owed_by))"
        " WHERE owed_by IS NOT NULL AND settled_on IS NULL"
    )
    op.execute("""
    CREATE TABLE budgets (
        id        uuid PRIMARY KEY,
        category  text NOT NULL UNIQUE,
        amount    numeric(18, 3) NOT NULL CHECK (amount > 0),
        currency  text NOT NULL,
        period    text NOT NULL CHECK (period IN ('week', 'month', 'year')),
        shown     text GENERATED ALWAYS AS (amount::numeric(18, 2) || ' ' || currency) STORED
    )
    """)
    op.execute("""
    CREATE TABLE exchange_rates (
        id     uuid PRIMARY KEY,
        base   text NOT NULL,
        quote  text NOT NULL,
        day    date NOT NULL,
        rate   numeric NOT NULL CHECK (rate > 0),
        UNIQUE (base, quote, day),
        CHECK (base <> quote)
    )
    """)
    op.execute("""
    CREATE TABLE category_rules (
        id        uuid PRIMARY KEY,
        term      text NOT NULL UNIQUE,
        category  text NOT NULL
    )
    """)
    op.execute("""
    CREATE TABLE distinct_transactions (
        id         uuid PRIMARY KEY,
        first_id   uuid NOT NULL REFERENCES transactions ON DELETE CASCADE DEFERRABLE,
        second_id  uuid NOT NULL REFERENCES transactions ON DELETE CASCADE DEFERRABLE,
        UNIQUE (first_id, second_id)
    )
    """)
    for table, label in (
        ("accounts", "account {name}"),
        ("bills", "{kind} {payee} {shown}"),
        ("transactions", "{description} {shown}"),
        ("transaction_parts", "part {category} {shown}"),
        ("budgets", "budget {category} {shown}"),
        ("exchange_rates", "rate {base}/{quote} {rate}"),
        ("category_rules", "rule {term}: {category}"),
        ("distinct_transactions", "decision about duplicates"),
    ):
        op.execute(f"SELECT make_record_table('{table}', '{label}')")
