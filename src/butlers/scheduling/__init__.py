"""Schedules: cron, tasks, runs, the scheduler loop and its tools."""
