"""Standard units and pairs of measurements; medications, doses, conditions, symptoms and meals."""

from alembic import op

revision = "health_003"
down_revision = "health_002"


def upgrade() -> None:
    _extend_measurements()
    _create_medications()
    _create_diary()
    for table, label in (
        ("medications", "medication {name}"),
        ("doses", "dose of {medication}"),
        ("conditions", "condition {name} ({status})"),
        ("symptoms", "symptom {name} {severity}/10"),
        ("meals", "{meal} {description}"),
    ):
        op.execute(f"SELECT make_record_table('{table}', '{label}')")


def _extend_measurements() -> None:
    # Rows keep their source: without triggers this is no change by anyone.
    op.execute("ALTER TABLE measurements DISABLE TRIGGER USER")
    op.execute("""
    ALTER TABLE measurements
        ADD COLUMN second           numeric,
        ADD COLUMN started_at       timestamptz,
        ADD COLUMN standard_value   numeric,
        ADD COLUMN standard_second  numeric,
        ADD COLUMN standard_unit    text
    """)
    op.execute("""
    UPDATE measurements SET
        type = replace(type, ' ', '_'),
        standard_value = CASE unit
            WHEN 'lb' THEN value * 0.45359237
            WHEN 'st' THEN value * 6.35029318
            WHEN '°F' THEN (value - 32) * 5 / 9
            ELSE value END,
        standard_unit = CASE unit WHEN 'lb' THEN 'kg' WHEN 'st' THEN 'kg' WHEN '°F' THEN '°C'
            ELSE unit END
    """)
    op.execute("""
    ALTER TABLE measurements
        ALTER COLUMN standard_value SET NOT NULL,
        ADD COLUMN reading text NOT NULL GENERATED ALWAYS AS (
            replace(type, '_', ' ') || ' ' || value::text
            || coalesce('/' || second::text, '') || coalesce(' ' || unit, '')
        ) STORED
    """)
    op.execute("ALTER TABLE measurements ENABLE TRIGGER USER")
    op.execute("UPDATE record_tables SET label = '{reading}' WHERE name = 'measurements'")
    op.execute("DROP INDEX measurements_latest")
    op.execute("""
    CREATE INDEX measurements_of_type ON measurements (type, measured_at DESC, id DESC)
        INCLUDE (standard_value, standard_second)
    """)
    op.execute("CREATE INDEX measurements_newest ON measurements (measured_at DESC, id DESC)")
    op.execute("""
    CREATE INDEX measurements_text ON measurements
        USING gin (to_tsvector('simple', reading || ' ' || coalesce(notes, '')))
    """)


def _create_medications() -> None:
    op.execute("""
    CREATE TABLE medications (
        id          uuid PRIMARY KEY,
        name        text NOT NULL,
        dose        text,
        quantity    numeric NOT NULL DEFAULT 1 CHECK (quantity > 0),
        times       text[] NOT NULL DEFAULT '{}',
        weekdays    smallint[] NOT NULL DEFAULT '{}',
        every_days  smallint NOT NULL DEFAULT 1 CHECK (every_days BETWEEN 1 AND 366),
        starts_on   date NOT NULL,
        ends_on     date,
        stock       numeric CHECK (stock >= 0),
        stock_at    timestamptz,
        active      boolean NOT NULL DEFAULT true,
        notes       text,
        CHECK ((stock IS NULL) = (stock_at IS NULL))
    )
    """)
    op.execute("CREATE UNIQUE INDEX medications_name ON medications (lower(name))")
    op.execute("""
    CREATE TABLE doses (
        id             uuid PRIMARY KEY,
        medication_id  uuid NOT NULL REFERENCES medications,
        medication     text NOT NULL,
        status         text NOT NULL DEFAULT 'taken' CHECK (status IN ('taken', 'skipped')),
        quantity       numeric NOT NULL DEFAULT 1 CHECK (quantity > 0),
        taken_at       timestamptz NOT NULL,
        due_at         timestamptz,
        notes          text
    )
    """)
    op.execute("CREATE INDEX doses_newest ON doses (taken_at DESC, id DESC)")
    op.execute(
        "CREATE INDEX doses_of_medication ON doses (medication_id, taken_at DESC)"
        " INCLUDE (status, quantity, due_at)"
    )
    op.execute("CREATE INDEX doses_due ON doses (due_at) INCLUDE (medication_id, status)")
    op.execute("CREATE UNIQUE INDEX doses_slot ON doses (medication_id, due_at)")
    op.execute("""
    CREATE INDEX doses_text ON doses
        USING gin (to_tsvector('simple', medication || ' ' || coalesce(notes, '')))
    """)


def _create_diary() -> None:
    op.execute("""
    CREATE TABLE conditions (
        id      uuid PRIMARY KEY,
        name    text NOT NULL,
        status  text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'managed', 'resolved')),
        since   date,
        notes   text
    )
    """)
    op.execute("CREATE UNIQUE INDEX conditions_name ON conditions (lower(name))")
    op.execute("""
    CREATE TABLE symptoms (
        id            uuid PRIMARY KEY,
        name          text NOT NULL,
        severity      smallint CHECK (severity BETWEEN 1 AND 10),
        condition_id  uuid REFERENCES conditions,
        occurred_at   timestamptz NOT NULL,
        notes         text
    )
    """)
    op.execute("CREATE INDEX symptoms_condition ON symptoms (condition_id)")
    op.execute("""
    CREATE INDEX symptoms_newest ON symptoms (occurred_at DESC, id DESC) INCLUDE (name, severity)
    """)
    op.execute("""
    CREATE INDEX symptoms_text ON symptoms
        USING gin (to_tsvector('simple', name || ' ' || coalesce(notes, '')))
    """)
    op.execute("""
    CREATE TABLE meals (
        id           uuid PRIMARY KEY,
        meal         text NOT NULL CHECK (meal IN ('breakfast', 'lunch', 'dinner', 'snack')),
        description  text NOT NULL,
        kcal         numeric CHECK (kcal >= 0),
        protein_g    numeric CHECK (protein_g >= 0),
        carbs_g      numeric CHECK (carbs_g >= 0),
        fat_g        numeric CHECK (fat_g >= 0),
        eaten_at     timestamptz NOT NULL,
        notes        text
    )
    """)
    op.execute("""
    CREATE INDEX meals_newest ON meals (eaten_at DESC, id DESC)
        INCLUDE (kcal, protein_g, carbs_g, fat_g)
    """)
    op.execute("""
    CREATE INDEX meals_text ON meals
        USING gin (to_tsvector('simple', description || ' ' || coalesce(notes, '')))
    """)
