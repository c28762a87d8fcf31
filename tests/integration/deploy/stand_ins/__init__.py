"""Images that stand in for those of others in docker-compose.yml, where no registry can be reached.

They have the programs of the real images: Cassandra and Kafka from the jars that `tailrace.local` fetches, PostgreSQL
and Prometheus from the base's distribution, cqlsh from PyPI. `Dockerfile` has a target for each.

What the compose file relies on is as in the real images, and nothing else:

- cassandra: `docker-entrypoint.sh` starts as root, takes `CASSANDRA_*` variables into /etc/cassandra/cassandra.yaml,
  and goes on as user cassandra (999). The node's files are in /var/lib/cassandra. `MAX_HEAP_SIZE`, `HEAP_NEWSIZE` and
  `cqlsh` are known.
- kafka: `KAFKA_*` variables become server.properties by Kafka's own class for that, which formats the storage too.
  User appuser (1000) owns /var/lib/kafka/data. /opt/kafka/bin/kafka-broker-api-versions.sh.
- postgres: `POSTGRES_USER` and its database are made by a server without TCP, as `POSTGRES_HOST_AUTH_METHOD` says.
- prometheus: user nobody owns /prometheus; arguments are Prometheus' own. `promtool` is
  Debian's, with the check that newer ones have.

Their versions of PostgreSQL and Prometheus are older than those of the compose file. Grafana has no stand-in.
"""
