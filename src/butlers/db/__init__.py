"""PostgreSQL: the embedded server, provisioning, roles, pools and migrations."""
