"""What Alembic runs to migrate: on the connection that it is given, whose transaction is the caller's."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
