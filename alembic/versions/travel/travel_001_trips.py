"""Trips with their legs, stays and bookings; documents with expiry; things to pack and to do."""

from alembic import op

revision = "travel_001"
down_revision = None
branch_labels = ("travel",)


def upgrade() -> None:
    _create_trips()
    _create_parts()
    _create_lists()
    for table, label in (
        ("trips", "trip {name}"),
        ("legs", "{title}"),
        ("stays", "stay at {name}"),
        ("bookings", "booking {title}"),
        ("documents", "{kind} {number}"),
        ("tasks", "{list} item {title}"),
    ):
        op.execute(f"SELECT make_record_table('{table}', '{label}')")


def _create_trips() -> None:
    op.execute("""
    CREATE TABLE trips (
        id            uuid PRIMARY KEY,
        name          text NOT NULL,
        destination   text,
        starts_on     date NOT NULL,
        ends_on       date NOT NULL,
        cancelled_at  timestamptz,
        notes         text,
        CHECK (starts_on <= ends_on)
    )
    """)
    op.execute("CREATE INDEX trips_days ON trips (ends_on, starts_on)")
    op.execute("CREATE INDEX trips_newest ON trips (starts_on DESC, id DESC)")
    op.execute("""
    CREATE INDEX trips_text ON trips USING gin (to_tsvector('simple',
        name || ' ' || coalesce(destination, '') || ' ' || coalesce(notes, '')))
    """)


def _create_parts() -> None:
    # Local times say what is printed on the ticket; the instants follow from them and the zones.
    op.execute("""
    CREATE TABLE legs (
        id              uuid PRIMARY KEY,
        trip_id         uuid NOT NULL REFERENCES trips,
        mode            text NOT NULL
            CHECK (mode IN ('flight', 'train', 'bus', 'ferry', 'car', 'other')),
        title           text NOT NULL,
        number          text,
        origin          text NOT NULL,
        origin_zone     text NOT NULL,
        departs_local   timestamp NOT NULL,
        departs_at      timestamptz NOT NULL,
        destination     text,
        arrival_zone    text,
        arrives_local   timestamp,
        arrives_at      timestamptz,
        carrier         text,
        seat            text,
        reference       text,
        cancelled_at    timestamptz,
        notes           text,
        CHECK (arrives_at IS NULL OR arrives_at > departs_at),
        CHECK ((arrives_at IS NULL) = (arrives_local IS NULL))
    )
    """)
    op.execute("CREATE INDEX legs_trip ON legs (trip_id, departs_at)")
    op.execute("CREATE INDEX legs_departure ON legs (departs_at, id)")
    op.execute(
        "CREATE UNIQUE INDEX legs_once ON legs (upper(number), departs_at) WHERE cancelled_at IS NULL"
    )
    op.execute("""
    CREATE INDEX legs_text ON legs USING gin (to_tsvector('simple',
        title || ' ' || coalesce(reference, '') || ' ' || coalesce(notes, '')))
    """)
    op.execute("""
    CREATE TABLE stays (
        id             uuid PRIMARY KEY,
        trip_id        uuid NOT NULL REFERENCES trips,
        name           text NOT NULL,
        address        text,
        city           text,
        zone           text NOT NULL,
        check_in       date NOT NULL,
        check_out      date NOT NULL,
        reference      text,
        cancelled_at   timestamptz,
        notes          text,
        CHECK (check_in < check_out)
    )
    """)
    op.execute("CREATE INDEX stays_trip ON stays (trip_id, check_in)")
    op.execute("CREATE INDEX stays_days ON stays (check_in DESC, id DESC)")
    op.execute("""
    CREATE INDEX stays_text ON stays USING gin (to_tsvector('simple',
        name || ' ' || coalesce(city, '') || ' ' || coalesce(reference, '') || ' ' || coalesce(notes, '')))
    """)
    op.execute("""
    CREATE TABLE bookings (
        id             uuid PRIMARY KEY,
        trip_id        uuid NOT NULL REFERENCES trips,
        kind           text NOT NULL
            CHECK (kind IN ('flight', 'train', 'hotel', 'car', 'restaurant', 'event', 'insurance', 'other')),
        title          text NOT NULL,
        reference      text,
        provider       text,
        starts_at      timestamptz,
        amount         numeric CHECK (amount >= 0),
        currency       text CHECK (currency ~ '^[A-Z]{3}$'),
        cancelled_at   timestamptz,
        notes          text,
        CHECK ((amount IS NULL) = (currency IS NULL))
    )
    """)
    op.execute("CREATE INDEX bookings_trip ON bookings (trip_id)")
    op.execute("CREATE UNIQUE INDEX bookings_reference ON bookings (upper(reference), kind)")
    op.execute("""
    CREATE INDEX bookings_text ON bookings USING gin (to_tsvector('simple',
        title || ' ' || coalesce(reference, '') || ' ' || coalesce(provider, '')
            || ' ' || coalesce(notes, '')))
    """)


def _create_lists() -> None:
    op.execute("""
    CREATE TABLE documents (
        id          uuid PRIMARY KEY,
        kind        text NOT NULL,
        holder      text NOT NULL DEFAULT 'me',
        number      text,
        country     text,
        issued_on   date,
        expires_on  date,
        notes       text
    )
    """)
    op.execute("""
    CREATE UNIQUE INDEX documents_once ON documents
        (kind, lower(holder), lower(coalesce(country, '')), upper(coalesce(number, '')))
    """)
    op.execute("CREATE INDEX documents_expiry ON documents (expires_on, id)")
    op.execute("CREATE INDEX documents_kind ON documents (kind, expires_on, id)")
    op.execute("""
    CREATE INDEX documents_text ON documents USING gin (to_tsvector('simple',
        kind || ' ' || holder || ' ' || coalesce(number, '') || ' ' || coalesce(notes, '')))
    """)
    op.execute("""
    CREATE TABLE tasks (
        id        uuid PRIMARY KEY,
        trip_id   uuid NOT NULL REFERENCES trips,
        list      text NOT NULL CHECK (list IN ('packing', 'before')),
        title     text NOT NULL,
        due_on    date,
        done_at   timestamptz
    )
    """)
    op.execute("CREATE UNIQUE INDEX tasks_once ON tasks (trip_id, list, lower(title))")
    op.execute("CREATE INDEX tasks_text ON tasks USING gin (to_tsvector('simple', title))")
    op.execute("CREATE INDEX tasks_due ON tasks (due_on) WHERE done_at IS NULL")
