"""Child processes: start, limit, sandbox and reap them. The only package that forks."""
