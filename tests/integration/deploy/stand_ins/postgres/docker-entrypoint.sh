#!/bin/sh
# Makes POSTGRES_USER, a superuser, and its database by a server without TCP, then starts the one that answers all.
set -eu
if [ "$(id -u)" = 0 ]; then
    mkdir -p "$PGDATA" /var/run/postgresql
    chown -R postgres:postgres "$PGDATA" /var/run/postgresql
    chmod 700 "$PGDATA"
    exec setpriv --reuid postgres --regid postgres --init-groups "$0" "$@"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    user=${POSTGRES_USER:-postgres}
    initdb --username "$user" --auth-local trust --auth-host trust
    echo "host all all all ${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}" >> "$PGDATA/pg_hba.conf"
    echo "listen_addresses = '*'" >> "$PGDATA/postgresql.conf"
    pg_ctl -w start -o "-c listen_addresses=''"
    if [ "$user" != postgres ]; then createdb --username "$user" --maintenance-db postgres "$user"; fi
    pg_ctl -w stop -m fast
fi
exec "$@"
