"""Alembic's scripts: each makes of the tables of one version those of the next."""
