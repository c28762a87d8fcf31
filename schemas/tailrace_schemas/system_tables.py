"""Definitions of Cassandra's own tables, whose ids are the same everywhere: built in, as no schema file has them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from typing import Final
from uuid import UUID

from tailrace_schemas.cql.types import parse_type
from tailrace_schemas.table import Column, ColumnKind, DroppedColumn, Table

# Recorded from `system_schema` of live nodes of 4.0.19, 4.1.10, 5.0.9 and 6.0-alpha2: the union of what they have.
# Across them a table only gained columns, and where a type changed its bytes did not (uuid to timeuuid, both 16 bytes).
# The log names columns in each update, so decoding needs name -> type and nothing else: a column too many does no harm,
# and one definition serves every release. A line is a kind and columns as "name type". The few columns that 6.0 has in
# descending order stand here as any other: the order is not in the bytes, and nothing compares these tables.
_TABLES: Final = """
system.IndexInfo
    partition_key: table_name text
    clustering: index_name text
    regular: value blob
system.available_ranges
    partition_key: keyspace_name text
    regular: ranges set<blob>
system.available_ranges_v2
    partition_key: keyspace_name text
    regular: full_ranges set<blob>; transient_ranges set<blob>
system.batches
    partition_key: id timeuuid
    regular: mutations list<blob>; version int
system.built_views
    partition_key: keyspace_name text
    clustering: view_name text
    regular: status_replicated boolean
system.compaction_history
    partition_key: id timeuuid
    regular: bytes_in bigint; bytes_out bigint; columnfamily_name text; compacted_at timestamp
    regular: compaction_properties frozen<map<text, text>>; keyspace_name text; rows_merged map<int, bigint>
system.consensus_migration_state
    partition_key: row_key blob
    clustering: cf_id uuid; consensus_migrated_at_epoch bigint
    regular: consensus_max_hlc bigint; consensus_target tinyint
system.local
    partition_key: key text
    regular: bootstrapped text; broadcast_address inet; broadcast_port int; cluster_name text; cql_version text
    regular: data_center text; gossip_generation int; host_id uuid; listen_address inet; listen_port int
    regular: native_protocol_version text; partitioner text; rack text; release_version text; rpc_address inet
    regular: rpc_port int; schema_version uuid; tokens set<text>; truncated_at map<uuid, blob>
    dropped: thrift_version text
system.local_metadata_log
    partition_key: epoch bigint
    regular: entry_id bigint; kind int; transformation blob
system.metadata_snapshots
    partition_key: epoch bigint
    regular: snapshot blob
system.paxos
    partition_key: row_key blob
    clustering: cf_id uuid
    regular: in_progress_ballot timeuuid; in_progress_read_ballot timeuuid; most_recent_commit blob
    regular: most_recent_commit_at timeuuid; most_recent_commit_version int; proposal blob
    regular: proposal_ballot timeuuid; proposal_version int
system.paxos_repair_history
    partition_key: keyspace_name text
    clustering: table_name text
    regular: points frozen<list<frozen<tuple<blob, timeuuid>>>>
system.peer_events
    partition_key: peer inet
    regular: hints_dropped map<timeuuid, int>
system.peer_events_v2
    partition_key: peer inet
    clustering: peer_port int
    regular: hints_dropped map<timeuuid, int>
system.peers
    partition_key: peer inet
    regular: data_center text; host_id uuid; preferred_ip inet; rack text; release_version text
    regular: rpc_address inet; schema_version uuid; tokens set<text>
system.peers_v2
    partition_key: peer inet
    clustering: peer_port int
    regular: data_center text; host_id uuid; native_address inet; native_port int; preferred_ip inet
    regular: preferred_port int; rack text; release_version text; schema_version uuid; tokens set<text>
system.prepared_statements
    partition_key: prepared_id blob
    regular: logged_keyspace text; query_string text
system.repairs
    partition_key: parent_id timeuuid
    regular: cfids set<uuid>; coordinator inet; coordinator_port int; last_update timestamp
    regular: participants set<inet>; participants_wp set<text>; ranges set<blob>; repaired_at timestamp
    regular: started_at timestamp; state int
system.size_estimates
    partition_key: keyspace_name text
    clustering: table_name text; range_start text; range_end text
    regular: mean_partition_size bigint; partitions_count bigint
system.sstable_activity
    partition_key: keyspace_name text; columnfamily_name text; generation int
    regular: rate_120m double; rate_15m double
system.sstable_activity_v2
    partition_key: keyspace_name text; table_name text; id text
    regular: rate_120m double; rate_15m double
system.table_estimates
    partition_key: keyspace_name text
    clustering: table_name text; range_type text; range_start text; range_end text
    regular: mean_partition_size bigint; partitions_count bigint
system.top_partitions
    partition_key: keyspace_name text
    clustering: table_name text; top_type text
    regular: last_update timestamp; top frozen<list<frozen<tuple<text, bigint>>>>
system.transferred_ranges
    partition_key: operation text; keyspace_name text
    clustering: peer inet
    regular: ranges set<blob>
system.transferred_ranges_v2
    partition_key: operation text; keyspace_name text
    clustering: peer inet; peer_port int
    regular: ranges set<blob>
system.view_builds_in_progress
    partition_key: keyspace_name text
    clustering: view_name text; start_token text; end_token text
    regular: keys_built bigint; last_token text
system_schema.aggregates
    partition_key: keyspace_name text
    clustering: aggregate_name text; argument_types frozen<list<text>>
    regular: final_func text; initcond text; return_type text; state_func text; state_type text
system_schema.column_masks
    partition_key: keyspace_name text
    clustering: table_name text; column_name text
    regular: function_argument_nulls frozen<list<boolean>>; function_argument_types frozen<list<text>>
    regular: function_argument_values frozen<list<text>>; function_keyspace text; function_name text
system_schema.columns
    partition_key: keyspace_name text
    clustering: table_name text; column_name text
    regular: clustering_order text; column_name_bytes blob; kind text; position int; type text
system_schema.dropped_columns
    partition_key: keyspace_name text
    clustering: table_name text; column_name text
    regular: dropped_time timestamp; kind text; type text
system_schema.functions
    partition_key: keyspace_name text
    clustering: function_name text; argument_types frozen<list<text>>
    regular: argument_names frozen<list<text>>; body text; called_on_null_input boolean; language text
    regular: return_type text
system_schema.indexes
    partition_key: keyspace_name text
    clustering: table_name text; index_name text
    regular: kind text; options frozen<map<text, text>>
system_schema.keyspaces
    partition_key: keyspace_name text
    regular: durable_writes boolean; fast_path frozen<map<text, text>>; replication frozen<map<text, text>>
system_schema.tables
    partition_key: keyspace_name text
    clustering: table_name text
    regular: auto_repair frozen<map<text, text>>; fast_path frozen<map<text, text>>
    regular: additional_write_policy text; allow_auto_snapshot boolean; bloom_filter_fp_chance double
    regular: caching frozen<map<text, text>>; cdc boolean; comment text; compaction frozen<map<text, text>>
    regular: compression frozen<map<text, text>>; crc_check_chance double; dclocal_read_repair_chance double
    regular: default_time_to_live int; extensions frozen<map<text, blob>>; flags frozen<set<text>>
    regular: gc_grace_seconds int; id uuid; incremental_backups boolean; max_index_interval int; memtable text
    regular: memtable_flush_period_in_ms int; min_index_interval int; read_repair text
    regular: read_repair_chance double; speculative_retry text
system_schema.triggers
    partition_key: keyspace_name text
    clustering: table_name text; trigger_name text
    regular: options frozen<map<text, text>>
system_schema.types
    partition_key: keyspace_name text
    clustering: type_name text
    regular: field_names frozen<list<text>>; field_types frozen<list<text>>
system_schema.views
    partition_key: keyspace_name text
    clustering: view_name text
    regular: auto_repair frozen<map<text, text>>
    regular: additional_write_policy text; allow_auto_snapshot boolean; base_table_id uuid; base_table_name text
    regular: bloom_filter_fp_chance double; caching frozen<map<text, text>>; cdc boolean; comment text
    regular: compaction frozen<map<text, text>>; compression frozen<map<text, text>>; crc_check_chance double
    regular: dclocal_read_repair_chance double; default_time_to_live int; extensions frozen<map<text, blob>>
    regular: gc_grace_seconds int; id uuid; include_all_columns boolean; incremental_backups boolean
    regular: max_index_interval int; memtable text; memtable_flush_period_in_ms int; min_index_interval int
    regular: read_repair text; read_repair_chance double; speculative_retry text; where_clause text
system_auth.cidr_groups
    partition_key: cidr_group text
    regular: cidrs frozen<set<frozen<tuple<inet, smallint>>>>
system_auth.cidr_permissions
    partition_key: role text
    regular: cidr_groups frozen<set<text>>
system_auth.identity_to_role
    partition_key: identity text
    regular: role text
system_auth.network_permissions
    partition_key: role text
    regular: dcs frozen<set<text>>
system_auth.resource_role_permissons_index
    partition_key: resource text
    clustering: role text
system_auth.role_members
    partition_key: role text
    clustering: member text
system_auth.role_permissions
    partition_key: role text
    clustering: resource text
    regular: permissions set<text>
system_auth.roles
    partition_key: role text
    regular: can_login boolean; is_superuser boolean; member_of set<text>; salted_hash text
system_cluster_metadata.distributed_metadata_log
    partition_key: epoch bigint
    regular: entry_id bigint; kind int; transformation blob
system_distributed.auto_repair_history
    partition_key: repair_type text
    clustering: host_id uuid
    regular: delete_hosts set<uuid>; delete_hosts_update_time timestamp; force_repair boolean
    regular: repair_finish_ts timestamp; repair_start_ts timestamp; repair_turn text
system_distributed.auto_repair_priority
    partition_key: repair_type text
    regular: repair_priority set<uuid>
system_distributed.compression_dictionaries
    partition_key: keyspace_name text; table_name text
    clustering: table_id text; dict_id bigint
    regular: created_at timestamp; dict blob; dict_checksum int; dict_length int; kind text
system_distributed.parent_repair_history
    partition_key: parent_id timeuuid
    regular: columnfamily_names set<text>; exception_message text; exception_stacktrace text
    regular: finished_at timestamp; keyspace_name text; options map<text, text>; requested_ranges set<text>
    regular: started_at timestamp; successful_ranges set<text>
system_distributed.partition_denylist
    partition_key: ks_name text; table_name text
    clustering: key blob
system_distributed.repair_history
    partition_key: keyspace_name text; columnfamily_name text
    clustering: id timeuuid
    regular: coordinator inet; coordinator_port int; exception_message text; exception_stacktrace text
    regular: finished_at timestamp; parent_id timeuuid; participants set<inet>; participants_v2 set<text>
    regular: range_begin text; range_end text; started_at timestamp; status text
system_distributed.view_build_status
    partition_key: keyspace_name text; view_name text
    clustering: host_id uuid
    regular: status text
system_traces.events
    partition_key: session_id uuid
    clustering: event_id timeuuid
    regular: activity text; source inet; source_elapsed int; source_port int; thread text
system_traces.sessions
    partition_key: session_id uuid
    regular: client inet; command text; coordinator inet; coordinator_port int; duration int
    regular: parameters map<text, text>; request text; started_at timestamp
"""

# What these nodes say of system columns that are gone for good: Long.MAX_VALUE microseconds, as milliseconds.
_DROPPED_AT: Final = 9_223_372_036_854_775_000


def system_table_id(keyspace: str, name: str) -> UUID:
    """The id of one of Cassandra's own tables: version-3 UUID of keyspace and name (TableId.forSystemTable)."""
    digest = hashlib.md5((keyspace + name).encode(), usedforsecurity=False).digest()
    return UUID(bytes=digest, version=3)


@cache
def system_tables() -> tuple[Table, ...]:
    """Cassandra's own tables (system, system_schema, system_auth, ...), by keyspace and name.

    None has cdc. Key columns are in key order, others sorted by name bytes, as everywhere.
    """
    tables: list[Table] = []
    kinds: dict[str, list[Column]] = {}
    # From the end, so that a table's name comes when all its columns are known.
    for line in reversed(_TABLES.strip().splitlines()):
        if line.startswith(" "):
            kind, columns = line.strip().split(": ")
            kinds.setdefault(kind, [])[:0] = [_column(kind, text) for text in columns.split("; ")]
        else:
            keyspace, _, name = line.partition(".")
            tables.append(_table(keyspace, name, kinds))
            kinds = {}
    return tuple(reversed(tables))


def _column(kind: str, text: str) -> Column:
    name, _, type_text = text.partition(" ")
    return Column(
        name=name,
        name_bytes=name.encode(),
        kind=ColumnKind("regular" if kind == "dropped" else kind),
        type=parse_type(type_text),
    )


def _table(keyspace: str, name: str, kinds: dict[str, list[Column]]) -> Table:
    return Table(
        keyspace=keyspace,
        name=name,
        id=system_table_id(keyspace, name),
        partition_key=_placed(kinds["partition_key"]),
        clustering=_placed(kinds.get("clustering", [])),
        static=tuple(sorted(kinds.get("static", []), key=lambda column: column.name_bytes)),
        regular=tuple(sorted(kinds.get("regular", []), key=lambda column: column.name_bytes)),
        dropped=tuple(DroppedColumn(column, _DROPPED_AT) for column in kinds.get("dropped", [])),
    )


def _placed(columns: list[Column]) -> tuple[Column, ...]:
    return tuple(replace(column, position=position) for position, column in enumerate(columns))
