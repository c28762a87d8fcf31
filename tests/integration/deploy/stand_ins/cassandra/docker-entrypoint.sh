#!/bin/sh
# Takes CASSANDRA_* variables into cassandra.yaml, and goes on as user cassandra.
set -eu
if [ "$(id -u)" = 0 ]; then
    find "$CASSANDRA_CONF" /var/lib/cassandra ! -user cassandra -exec chown cassandra {} +
    exec setpriv --reuid cassandra --regid cassandra --init-groups "$0" "$@"
fi

put() { # expression of sed; the file stays, as it may be a mount
    work=$(mktemp)
    sed -E "$1" "$CASSANDRA_CONF/cassandra.yaml" > "$work"
    cat "$work" > "$CASSANDRA_CONF/cassandra.yaml"
    rm "$work"
}

address=$(hostname -i | cut -d ' ' -f 1)
listen=${CASSANDRA_LISTEN_ADDRESS:-$address}
broadcast=${CASSANDRA_BROADCAST_ADDRESS:-$listen}
put "s/(- seeds:).*/\1 \"${CASSANDRA_SEEDS:-$broadcast}\"/"
put "s/^listen_address:.*/listen_address: $listen/"
put "s/^rpc_address:.*/rpc_address: ${CASSANDRA_RPC_ADDRESS:-0.0.0.0}/"
put "s/^(# )?broadcast_address:.*/broadcast_address: $broadcast/"
put "s/^(# )?broadcast_rpc_address:.*/broadcast_rpc_address: ${CASSANDRA_BROADCAST_RPC_ADDRESS:-$broadcast}/"
if [ -n "${CASSANDRA_CLUSTER_NAME:-}" ]; then put "s/^cluster_name:.*/cluster_name: $CASSANDRA_CLUSTER_NAME/"; fi
exec "$@"
