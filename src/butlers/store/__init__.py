"""Everything that touches PostgreSQL: the server, roles, pools, migrations, the queue, and all core SQL."""
