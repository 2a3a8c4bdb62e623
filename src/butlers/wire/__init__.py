"""MCP between processes: a light client, fleet tokens, the directory of butlers, telemetry."""
