"""Addresses in the form in which they are compared, published to the shared table contact_info.

The triggers publish in the transaction of the change, so undo and merges are published as well. A role
without the right to write the shared table, such as that of a copy under another name, publishes nothing.
"""

from alembic import op

revision = "relationship_002"
down_revision = "relationship_001"


def upgrade() -> None:
    op.execute("ALTER TABLE contact_ways ADD COLUMN address text")
    op.execute("""
    UPDATE contact_ways SET address = CASE
        WHEN kind = 'email' AND value ~ '^[^ @]+@[^ @]+$' THEN lower(value)
        WHEN kind = 'phone' AND value ~ '^\\s*(\\+|00)[0-9 ()/.-]+$'
            THEN '+' || ltrim(regexp_replace(value, '[^0-9]', '', 'g'), '0')
        WHEN kind = 'chat' THEN lower(value) END
    """)
    op.execute(
        "CREATE INDEX contact_ways_address ON contact_ways (kind, address) WHERE address IS NOT NULL"
    )
    op.execute("""
    CREATE FUNCTION publish_contacts(people uuid[]) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        IF to_regclass('shared.contact_info') IS NULL
            OR NOT has_table_privilege('shared.contact_info', 'INSERT') THEN
            RETURN;
        END IF;
        DELETE FROM shared.contact_info WHERE contact_id = ANY(people);
        INSERT INTO shared.contact_info (contact_id, type, value, name)
        SELECT DISTINCT p.id, w.kind, w.address, p.name
        FROM contact_ways AS w JOIN people AS p ON p.id = w.person_id
        WHERE p.id = ANY(people) AND p.merged_into IS NULL AND w.address IS NOT NULL;
    END
    $$
    """)
    for event, tables in (
        ("INSERT", "NEW TABLE AS changed"),
        ("DELETE", "OLD TABLE AS changed"),
    ):
        _publish_after(event, tables, "SELECT person_id FROM changed")
    _publish_after(
        "UPDATE",
        "OLD TABLE AS old_rows NEW TABLE AS new_rows",
        "SELECT person_id FROM old_rows UNION SELECT person_id FROM new_rows",
    )
    op.execute("""
    CREATE FUNCTION publish_people() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM publish_contacts(ARRAY(
            SELECT n.id FROM new_rows AS n JOIN old_rows AS o USING (id)
            WHERE (n.name, n.merged_into) IS DISTINCT FROM (o.name, o.merged_into)));
        RETURN NULL;
    END
    $$
    """)
    op.execute("""
    CREATE TRIGGER publish_people AFTER UPDATE ON people
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION publish_people()
    """)
    op.execute("SELECT publish_contacts(ARRAY(SELECT id FROM people))")


def _publish_after(event: str, tables: str, people: str) -> None:
    name = f"publish_ways_{event.lower()}"
    op.execute(f"""
    CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM publish_contacts(ARRAY({people}));
        RETURN NULL;
    END
    $$
    """)
    op.execute(f"""
    CREATE TRIGGER {name} AFTER {event} ON contact_ways REFERENCING {tables}
    FOR EACH STATEMENT EXECUTE FUNCTION {name}()
    """)
