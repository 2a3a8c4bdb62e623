"""Tables of every butler: state, schedules, sessions, queue, call journal and audit log of tool calls."""

from alembic import op

revision = "core_001"
down_revision = None
branch_labels = ("core",)


def upgrade() -> None:
    op.execute("""
    CREATE TABLE state (
        key         text PRIMARY KEY,
        value       jsonb NOT NULL,
        version     bigint NOT NULL DEFAULT 1,
        updated_at  timestamptz NOT NULL DEFAULT now()
    )
    """)
    op.execute("""
    CREATE TABLE scheduled_tasks (
        id             uuid PRIMARY KEY,
        name           text NOT NULL UNIQUE,
        cron           text NOT NULL,
        timezone       text NOT NULL DEFAULT 'UTC',
        dispatch_mode  text NOT NULL DEFAULT 'prompt' CHECK (dispatch_mode IN ('prompt', 'job')),
        prompt         text,
        job_name       text,
        job_args       jsonb,
        source         text NOT NULL DEFAULT 'db' CHECK (source IN ('toml', 'db')),
        enabled        boolean NOT NULL DEFAULT true,
        next_run_at    timestamptz,
        last_run_at    timestamptz,
        last_result    jsonb,
        created_at     timestamptz NOT NULL DEFAULT now(),
        updated_at     timestamptz NOT NULL DEFAULT now()
    )
    """)
    op.execute("CREATE INDEX scheduled_tasks_due ON scheduled_tasks (next_run_at) WHERE enabled")
    op.execute("""
    CREATE TABLE sessions (
        id              uuid PRIMARY KEY,
        request_id      uuid,
        trigger_source  text NOT NULL,
        runtime         text NOT NULL,
        model           text,
        prompt          text NOT NULL,
        output          text,
        outcome         text,
        success         boolean,
        error           text,
        input_tokens    bigint,
        output_tokens   bigint,
        cached_tokens   bigint,
        cost_usd        numeric(12, 6),
        duration_ms     integer,
        trace_id        text,
        started_at      timestamptz NOT NULL DEFAULT now(),
        completed_at    timestamptz
    )
    """)
    op.execute("CREATE INDEX sessions_started ON sessions (started_at DESC)")
    op.execute(
        "CREATE INDEX sessions_request ON sessions (request_id) WHERE request_id IS NOT NULL"
    )
    op.execute("""
    CREATE TABLE tool_calls (
        id            uuid PRIMARY KEY,
        session_id    uuid,
        request_id    uuid,
        caller_kind   text NOT NULL,
        caller        text NOT NULL,
        tool          text NOT NULL,
        arguments     jsonb NOT NULL,
        ok            boolean NOT NULL,
        replayed      boolean NOT NULL DEFAULT false,
        error         text,
        duration_ms   integer NOT NULL,
        called_at     timestamptz NOT NULL DEFAULT now()
    )
    """)
    op.execute("CREATE INDEX tool_calls_session ON tool_calls (session_id, id)")
    op.execute("""
    CREATE TABLE call_journal (
        request_id      uuid NOT NULL,
        tool            text NOT NULL,
        arguments_hash  text NOT NULL,
        ordinal         integer NOT NULL,
        session_id      uuid,
        result          jsonb,
        called_at       timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (request_id, tool, arguments_hash, ordinal)
    )
    """)
    op.execute("""
    CREATE TABLE queue_items (
        id            uuid PRIMARY KEY,
        queue         text NOT NULL,
        key           text NOT NULL,
        payload       jsonb NOT NULL,
        priority      smallint NOT NULL DEFAULT 0,
        state         text NOT NULL DEFAULT 'ready'
                      CHECK (state IN ('ready', 'leased', 'done', 'dead')),
        attempts      integer NOT NULL DEFAULT 0,
        max_attempts  integer NOT NULL,
        fence         bigint NOT NULL DEFAULT 0,
        holder        bigint,
        lease_until   timestamptz,
        run_after     timestamptz NOT NULL DEFAULT now(),
        result        jsonb,
        error         text,
        created_at    timestamptz NOT NULL DEFAULT now(),
        finished_at   timestamptz,
        UNIQUE (queue, key)
    )
    """)
    op.execute("""
    CREATE INDEX queue_items_ready ON queue_items (queue, priority, run_after, id)
        WHERE state = 'ready'
    """)
    op.execute(
        "CREATE INDEX queue_items_leased ON queue_items (lease_until) WHERE state = 'leased'"
    )
    op.execute("CREATE INDEX queue_items_dead ON queue_items (queue) WHERE state = 'dead'")
