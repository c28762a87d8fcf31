"""Breakages of subscriptions: their leases, and the secrets of their sinks."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import ASSERTED, Breakage, Needs, Red

LEASES: Final = "spark/tailrace_server/meta/leases.py"
SUBSCRIPTIONS: Final = "spark/tailrace_server/meta/subscriptions.py"
SNAPSHOTS: Final = "spark/tailrace_server/worker/snapshots.py"
WORKER: Final = "spark/tailrace_server/worker/worker.py"
APPLICATIONS: Final = "unit/server/worker/test_applications.py"
WORKED: Final = "unit/server/worker/test_worker.py"
PAGE_ACCESS: Final = "unit/server/web/test_access.py"
SERVED: Final = "unit/server/api/test_api.py"
TOKENS: Final = "unit/server/oidc/test_tokens.py"
SIGN_IN: Final = "unit/server/web/test_signing_in.py"
DROPPED: Final = "unit/server/operations/test_dropping.py"
FILES_DROPPED: Final = "unit/spark/sinks/files/test_dropping.py"
LIMITS: Final = "unit/server/api/test_limits.py"
CONTRACT: Final = "unit/server/meta/test_contract.py"

SHARING: Final = "spark/tailrace_spark/job/sharing.py"
SEATED: Final = "unit/spark/job/test_seats.py"
SHARED: Final = "integration/server/test_shared_reading.py"

BREAKAGES: Final = (
    Breakage(
        name="a-member-joins-a-reading-that-is-past-it",
        promise="of subscriptions that read together each gets every change",
        file=SHARING,
        old="    return not behind(member, reading) and behind(reading, member) <= NEAR\n",
        new="    return behind(reading, member) <= NEAR\n",
        needs=Needs.NOTHING,
        reds=(Red(SEATED, "test_nobody_joins_a_reading_that_is_past_it_or_has_ended", "is None"),),
    ),
    Breakage(
        name="a-member-gets-what-it-has-read",
        promise="of subscriptions that read together each gets every change",
        file=SHARING,
        old="    return offset >= firsts.get((topic, partition), 0)\n",
        new="    return offset > firsts.get((topic, partition), 0)\n",
        needs=Needs.NOTHING,
        reds=(Red("unit/spark/job/test_sharing.py", "test_who_joins_gets_every_record_from_where_it_was_once", "=="),),
    ),
    Breakage(
        name="all-wait-for-a-member-that-stands-still",
        promise="of subscriptions that read together none waits for a sick one",
        file="spark/tailrace_spark/job/seats.py",
        old="                        self._close(seat, why)\n                    break\n",
        new="                    break\n",
        needs=Needs.NOTHING,
        reds=(Red(SEATED, "test_who_stands_still_is_left_behind_and_the_others_go_on", "is not None"),),
    ),
    Breakage(
        name="offsets-of-dropped-files-stay",
        promise="a target that was dropped can be written anew",
        file="spark/tailrace_spark/sinks/files/dropping.py",
        old="    remaining_ends = {partition: end for partition, end in ends.items() if partition[0] not in topics}\n",
        new="    remaining_ends = ends\n",
        needs=Needs.NOTHING,
        reds=(Red(FILES_DROPPED, "test_the_same_records_can_be_written_anew", "shop.plain.: 2"),),
    ),
    Breakage(
        name="a-taken-over-snapshot-begins-again",
        promise="a worker that takes over goes on at the range of the snapshot",
        file=SNAPSHOTS,
        old="        ranges = self._leases.snapshots(self._claim)\n",
        new="        ranges = None\n",
        needs=Needs.NOTHING,
        reds=(
            Red("unit/server/worker/test_snapshots.py", "test_the_next_worker_has_the_ranges_of_the_last_one", "== "),
        ),
    ),
    Breakage(
        name="a-reset-keeps-the-ranges-of-the-snapshot",
        promise="a reset with a snapshot reads the tables from their first range",
        file=SUBSCRIPTIONS,
        old="            if snapshot or changed.state is State.CANCELLED:\n",
        new="            if changed.state is State.CANCELLED:\n",
        needs=Needs.NOTHING,
        reds=(
            Red("unit/server/operations/test_operations.py", "test_a_reset_with_a_snapshot_forgets_its_ranges", "== "),
        ),
    ),
    Breakage(
        name="a-lease-is-renewed-after-its-end",
        promise="a subscription has one owner at a time",
        file=LEASES,
        old="        return subscribe.c.owner == self.owner, subscribe.c.lease_until >= now()\n",
        new="        return (subscribe.c.owner == self.owner,)\n",
        needs=Needs.NOTHING,
        reds=(Red(CONTRACT, "test_a_lapsed_owner_is_refused[sqlite]", r"killed.renew\(1\) == \{\}"),),
    ),
    Breakage(
        name="progress-is-kept-without-the-token",
        promise="a worker that has lost a subscription keeps no progress of it",
        file=LEASES,
        old="            subscribe.c.owner == self.owner,\n            subscribe.c.token == claim.token,\n",
        new="            subscribe.c.id == claim.subscription.id,\n",
        needs=Needs.NOTHING,
        reds=(Red(CONTRACT, "test_a_lapsed_owner_is_refused[sqlite]", "DID NOT RAISE"),),
    ),
    Breakage(
        name="a-claim-does-not-ask-whether-it-is-free",
        promise="a subscription has one owner at a time",
        file=LEASES,
        old="        free = subscribe.c.id == identity, *self._runnable(), self._free()\n",
        new="        free = subscribe.c.id == identity, *self._runnable()\n",
        needs=Needs.NOTHING,
        reds=(Red("unit/server/meta/test_claimants.py", "test_no_token_has_two_owners[sqlite-1]", "assert"),),
    ),
    Breakage(
        name="an-earlier-process-keeps-its-token",
        promise="each process of a subscription's own application runs under a new fencing token",
        file=LEASES,
        old=".values(token=subscribe.c.token + 1))\n            subscription =",
        new=".values(token=subscribe.c.token))\n            subscription =",
        needs=Needs.NOTHING,
        reds=(Red(APPLICATIONS, "test_an_earlier_process_keeps_no_progress", "DID NOT RAISE"),),
    ),
    Breakage(
        name="an-application-outlives-its-lease",
        promise="a process of a subscription's own application ends with its lease",
        file="spark/tailrace_server/worker/application.py",
        old='    except LostLeaseError as error:\n        log.warning("%s", error)\n        run.stop()\n',
        new='    except LostLeaseError as error:\n        log.warning("%s", error)\n',
        needs=Needs.NOTHING,
        reds=(Red(APPLICATIONS, "test_it_ends_where_it_is_told_to_or_has_lost_its_lease", "assert"),),
    ),
    Breakage(
        name="any-property-of-spark-may-be-set",
        promise="a subscription sets allowed properties of Spark only",
        file="spark/tailrace_server/operations/applications.py",
        old="        if not any(fnmatch.fnmatchcase(key, pattern) for pattern in allowed):\n",
        new="        if not allowed:\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/server/operations/test_applications.py",
                "test_what_could_run_code_or_tell_secrets_is_refused"
                "[spark.driver.extraJavaOptions--agentpath:x-is not for subscriptions to set]",
                "DID NOT RAISE",
            ),
        ),
    ),
    Breakage(
        name="another-request-is-taken-for-the-same",
        promise="another request under a name that is taken is refused",
        file=SUBSCRIPTIONS,
        old="            if old != new\n",
        new="            if old is None\n",
        needs=Needs.NOTHING,
        reds=(Red(CONTRACT, "test_another_request_under_the_name_is_refused", "DID NOT RAISE"),),
    ),
    Breakage(
        name="what-is-released-keeps-its-lease",
        promise="what a worker releases is free at once",
        file=LEASES,
        old="statement.values(owner=None, lease_until=None)",
        new="statement.values(lease_until=now() + self._lease)",
        needs=Needs.NOTHING,
        reds=(Red(CONTRACT, "test_what_is_released_is_free_at_once[sqlite]", r"== \[2\]"),),
    ),
    Breakage(
        name="secrets-are-kept-as-they-are",
        promise="no secret of a sink is readable in the meta database",
        file=SUBSCRIPTIONS,
        old="        sealed = self._sealer.seal(as_json(dict(request.settings)))\n",
        new="        sealed = as_json(dict(request.settings))\n",
        needs=Needs.NOTHING,
        reds=(Red(CONTRACT, "test_no_secret_is_in_the_database[sqlite]", "assert SECRET not in"),),
    ),
    Breakage(
        name="a-failing-subscription-is-tried-every-second",
        promise="one that fails is tried again with growing pauses",
        file=WORKER,
        old="pause_seconds(max(1, attempts), ",
        new="pause_seconds(1, ",
        needs=Needs.NOTHING,
        reds=(Red(WORKED, "test_one_that_fails_waits_longer_each_time_and_the_others_run_on", "== begun"),),
    ),
    Breakage(
        name="a-heir-never-says-that-it-works",
        promise="a failing one stays failing until it is seen to work",
        file=WORKER,
        old="if claim.subscription.state is State.FAILING:",
        new="if claim.subscription.state is State.CANCELLED:",
        needs=Needs.NOTHING,
        reds=(Red(WORKED, "test_a_heir_knows_that_it_was_failing", r"assert \(?.*active"),),
    ),
    Breakage(
        name="lost-records-are-passed-over",
        promise="what Kafka deleted before a subscription read it is said",
        file="spark/tailrace_server/worker/positions.py",
        old="            if stops:\n",
        new="            if stops and not stored:\n",
        needs=Needs.NOTHING,
        reds=(
            Red("unit/server/worker/test_positions.py", "test_what_kafka_lost_is_said_or_read_past", "DID NOT RAISE"),
        ),
    ),
    Breakage(
        name="a-filter-of-log-tables-is-kept",
        promise="a request with a wrong setting is refused at once",
        file="spark/tailrace_server/operations/asking.py",
        old="    _require_fit(name, section.type, shape)\n",
        new="",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/server/operations/test_asking.py",
                "test_what_is_wrong_is_refused_with_its_name[more4-prints where the worker runs]",
                "DID NOT RAISE",
            ),
        ),
    ),
    Breakage(
        name="a-refused-request-is-repeated",
        promise="no answer has a secret of a sink",
        file="spark/tailrace_server/api/app.py",
        old="    app.exception_handler(RequestValidationError)(_invalid)\n",
        new="",
        needs=Needs.NOTHING,
        reds=(Red(SERVED, "test_no_answer_has_a_secret", "if SECRET in text"),),
    ),
    Breakage(
        name="every-key-may-do-everything",
        promise="over HTTP nobody does what the role of the API key does not allow",
        file="spark/tailrace_server/api/access.py",
        old="    if not caller.role.may(needed):\n",
        new="    if not caller.role.may(Role.READ):\n",
        needs=Needs.NOTHING,
        reds=(Red(SERVED, "test_every_route_asks_for_a_key_with_its_role[GET-/v1/audit-admin]", "assert"),),
    ),
    Breakage(
        name="a-condition-with-from-is-written-as-it-is",
        promise="a request written as a statement is read as the same request",
        file="spark/tailrace_server/sql/rendering.py",
        old="    return text if statements == [_plain(create)] else _text(create, _in_dollars(create.where))\n",
        new="    return text if statements else _text(create, _in_dollars(create.where))\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/server/sql/test_statements.py",
                "test_a_request_as_text_is_read_as_the_same_request",
                "asked_of",
            ),
        ),
    ),
    Breakage(
        name="a-change-is-not-counted-for-the-mirror",
        promise="each change of a subscription comes into its topic",
        file=SUBSCRIPTIONS,
        old='            values = {**changeable(changed), "changes": subscribe.c.changes + 1}\n',
        new="            values = changeable(changed)\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/server/meta/test_backup.py",
                "test_the_outbox_has_what_is_not_published[sqlite]",
                r"== \[first.id\]",
            ),
        ),
    ),
    Breakage(
        name="a-cut-backup-is-restored",
        promise="a backup is restored as it was, all or nothing",
        file="spark/tailrace_server/meta/backup.py",
        old='                if record.get("rows") != sum(counts.values()):\n',
        new='                if record.get("rows") is None:\n',
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/server/meta/test_backup.py",
                "test_what_is_no_whole_backup_changes_nothing[sqlite]",
                "DID NOT RAISE",
            ),
        ),
    ),
    Breakage(
        name="a-dry-run-alters",
        promise="a dry run changes nothing at all",
        file="spark/tailrace_server/operations/operations.py",
        old="        if lines and not dry_run:\n",
        new="        if lines:\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/server/cli/test_apply.py",
                "test_what_is_declared_becomes_true[direct]",
                r"assert apply\(changed\) == wanted",
            ),
        ),
    ),
    Breakage(
        name="a-form-of-another-session-counts",
        promise="a form counts with the token of its session alone",
        file="spark/tailrace_server/web/access.py",
        old='    if not same_token(visitor.session, form.get(TOKEN, "")):\n',
        new="    if not form.get(TOKEN):\n",
        needs=Needs.NOTHING,
        reds=(Red(PAGE_ACCESS, "test_a_form_needs_the_token_of_its_session", "== 403"),),
    ),
    Breakage(
        name="pages-of-other-sites-are-not-told-apart",
        promise="no page of another site changes anything by way of a browser",
        file="spark/tailrace_server/web/guard.py",
        old="        return site in _OTHER_SITES\n",
        new="        return False\n",
        needs=Needs.NOTHING,
        reds=(Red(PAGE_ACCESS, "test_no_other_sites_page_changes_anything[headers0]", "another site"),),
    ),
    Breakage(
        name="tokens-for-other-audiences-count",
        promise="a token counts if the issuer has signed it for this server",
        file="spark/tailrace_server/oidc/tokens.py",
        old='                aud={"essential": True, "value": audience},\n',
        new='                aud={"essential": True},\n',
        needs=Needs.NOTHING,
        reds=(Red(TOKENS, "test_a_token_is_refused_with_a_reason[of another audience]", "DID NOT RAISE"),),
    ),
    Breakage(
        name="an-answer-to-somebody-else-counts",
        promise="nobody is signed in by an answer to an attempt of another browser",
        file="spark/tailrace_server/oidc/sign_in.py",
        old='if not compare_digest(answer.get("state", "").encode(), flow.state.encode()):',
        new='if not answer.get("state"):',
        needs=Needs.NOTHING,
        reds=(Red(SIGN_IN, "test_nobody_is_signed_in_by_an_answer_to_somebody_else", "belongs to another attempt"),),
    ),
    Breakage(
        name="an-id-token-of-another-attempt-counts",
        promise="an ID token counts for the attempt that it answers",
        file="spark/tailrace_server/oidc/tokens.py",
        old="if not isinstance(answered, str) or not compare_digest(answered.encode(), nonce.encode()):",
        new="if not isinstance(answered, str):",
        needs=Needs.NOTHING,
        reds=(
            Red(SIGN_IN, "test_an_id_token_that_does_not_count[changed0-answers another request to sign in]", ASSERTED),
        ),
    ),
    Breakage(
        name="tokens-never-end",
        promise="a token counts if it is good now",
        file="spark/tailrace_server/oidc/tokens.py",
        old="                leeway=skew,\n",
        new="                leeway=skew + 86_400,\n",
        needs=Needs.NOTHING,
        reds=(Red(TOKENS, "test_a_token_is_refused_with_a_reason[expired]", "DID NOT RAISE"),),
    ),
    Breakage(
        name="all-callers-have-one-bucket",
        promise="a caller that asks too often gets 429, and others are answered",
        file="spark/tailrace_server/api/access.py",
        old="self.limit.wait(name)",
        new='self.limit.wait("")',
        needs=Needs.NOTHING,
        reds=(Red(LIMITS, "test_too_many_requests_of_a_key_are_refused_and_others_go_on", "429 == 200|== 200"),),
    ),
    Breakage(
        name="left-out-tables-are-read",
        promise="tables of a pattern that do not fit are left out and named",
        file="spark/tailrace_server/worker/unfit.py",
        old="        if not self.topics:\n",
        new="        if self.topics:\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/server/worker/test_unfit.py",
                "test_a_table_that_does_not_fit_is_left_out_with_its_topic",
                "assert not",
            ),
        ),
    ),
    Breakage(
        name="a-filter-may-ask-for-any-column",
        promise="a filter that its table cannot be asked is refused at once",
        file="spark/tailrace_server/operations/conditions.py",
        old="    if top is None:\n        raise ConditionError(_unknown(name[0], table, schema, written=written))\n",
        new="    if top is None:\n        return\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/server/operations/test_checks.py",
                "test_a_log_of_changes_may_be_asked_what_is_written",
                "DID NOT RAISE",
            ),
        ),
    ),
    Breakage(
        name="a-member-is-taken-for-another-process",
        promise="of subscriptions that read a topic together each gets every change",
        file="spark/tailrace_spark/sinks/state_store/fences.py",
        old="        if stream == self._stream and stored not in self._own:\n",
        new="        if self._own and stored != self._own[1]:\n",
        needs=Needs.KAFKA,
        session="shared-reading",
        reds=(Red(SHARED, "test_members_of_all_kinds_of_sinks_write_together", "'postgresql', 'images'"),),
    ),
    Breakage(
        name="a-shared-target-is-dropped",
        promise="a target is dropped only where no other subscription writes there",
        file="spark/tailrace_server/operations/dropping.py",
        old="    if sharing:\n",
        new="    if sharing and False:\n",
        needs=Needs.NOTHING,
        reds=(Red(DROPPED, "test_what_others_write_into_is_not_dropped", "DID NOT RAISE"),),
    ),
    Breakage(
        name="a-target-is-dropped-under-its-worker",
        promise="a target is dropped once no worker has it",
        file=SUBSCRIPTIONS,
        old="identity, subscribe.c.owner.is_not(None), subscribe",
        new="identity, subscribe.c.owner.is_(None), subscribe",
        needs=Needs.NOTHING,
        reds=(Red(DROPPED, "test_a_worker_that_has_it_is_seen", "assert"),),
    ),
)
