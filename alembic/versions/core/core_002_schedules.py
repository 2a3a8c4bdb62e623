"""Schedules: one-time tasks, reminders, the policy for missed times, and one run per due time."""

from alembic import op

revision = "core_002"
down_revision = "core_001"


def upgrade() -> None:
    op.execute("""
    ALTER TABLE scheduled_tasks
        ALTER COLUMN cron DROP NOT NULL,
        ADD COLUMN run_at           timestamptz,
        ADD COLUMN message          text,
        ADD COLUMN check_name       text,
        ADD COLUMN missed           text NOT NULL DEFAULT 'skip'
                                    CHECK (missed IN ('skip', 'once', 'ask')),
        ADD COLUMN missed_within_s  double precision,
        ADD COLUMN exact            boolean NOT NULL DEFAULT true,
        ADD COLUMN channel          text,
        ADD COLUMN target           text,
        ADD COLUMN thread           text,
        ADD COLUMN request          jsonb,
        ADD COLUMN disabled_by      text CHECK (disabled_by IN ('owner', 'file')),
        ADD COLUMN created_by       text NOT NULL DEFAULT 'unknown',
        DROP CONSTRAINT scheduled_tasks_dispatch_mode_check,
        ADD CONSTRAINT scheduled_tasks_dispatch_mode_check
            CHECK (dispatch_mode IN ('prompt', 'job', 'message')),
        ADD CONSTRAINT scheduled_tasks_one_timing CHECK (num_nonnulls(cron, run_at) = 1),
        ADD CONSTRAINT scheduled_tasks_address CHECK (num_nonnulls(channel, target) IN (0, 2)),
        ADD CONSTRAINT scheduled_tasks_content CHECK (
            CASE dispatch_mode
                WHEN 'prompt' THEN prompt IS NOT NULL
                WHEN 'job' THEN job_name IS NOT NULL
                ELSE message IS NOT NULL AND channel IS NOT NULL
            END
        )
    """)
    # No foreign key: what became of a due time stays known when its task is deleted.
    op.execute("""
    CREATE TABLE schedule_runs (
        id           uuid PRIMARY KEY,
        task_id      uuid NOT NULL,
        task_name    text NOT NULL,
        due_at       timestamptz NOT NULL,
        started_at   timestamptz,
        finished_at  timestamptz,
        outcome      text CHECK (
            outcome IN ('ran', 'failed', 'missed', 'skipped', 'nothing-to-say')
        ),
        detail       text,
        session_id   uuid,
        created_at   timestamptz NOT NULL DEFAULT now(),
        UNIQUE (task_id, due_at)
    )
    """)
    op.execute("CREATE INDEX schedule_runs_open ON schedule_runs (task_id) WHERE outcome IS NULL")
