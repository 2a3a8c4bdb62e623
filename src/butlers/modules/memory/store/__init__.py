"""Tables of memory: SQL by table group, forgetting, export and import, statistics."""
