#!/bin/sh
# Lays cdc.yaml (beside this script) over the image's cassandra.yaml, key by key, then starts the image's entry point.
set -eu
here=$(dirname "$0")
yaml="${CASSANDRA_CONF:-/etc/cassandra}/cassandra.yaml"
work=$(mktemp)
cp "$yaml" "$work"
grep -E '^[a-z_]+:' "$here/cdc.yaml" | while IFS=: read -r key _; do
    sed "/^$key:/d" "$work" > "$work.next"
    mv "$work.next" "$work"
done
cat "$here/cdc.yaml" >> "$work"
cat "$work" > "$yaml" # not mv: owner and mode stay
rm "$work"
exec "${ENTRYPOINT:-docker-entrypoint.sh}" "$@"
