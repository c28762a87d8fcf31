"""Breakages of subscriptions: their leases, and where they may lead."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Red, breakage
from tests.breakages.mutations import argument, compare, constant, drop, negate, replace, together, unwrap

WORKED: Final = "unit/server/worker/test_worker.py"
PAGE_ACCESS: Final = "unit/server/web/test_access.py"
SERVED: Final = "unit/server/api/test_api.py"
TOKENS: Final = "unit/server/oidc/test_tokens.py"
SIGN_IN: Final = "unit/server/web/test_signing_in.py"
LIMITS: Final = "unit/server/api/test_access.py"
CONTRACT: Final = "unit/server/meta/test_contract.py"

SEATED: Final = "unit/spark/job/test_sharing.py"

BREAKAGES: Final = {
    "a-member-gets-what-it-has-read": breakage(
        "of subscriptions that read together each gets every change",
        "tailrace_spark.job.sharing:_is_unread",
        compare("offset >= firsts.get((topic, partition), 0)", ">"),
        Red("unit/spark/job/test_sharing.py", "test_who_joins_gets_every_record_from_where_it_was_once", "=="),
    ),
    "a-member-reads-on-in-a-topic-made-again": breakage(
        "what Kafka deleted before a subscription read it is said, of those that read together too",
        "tailrace_spark.job.member:Member._write",
        constant("sorted(...)", None),
        Red(
            "unit/spark/job/test_member.py",
            "test_what_was_made_again_before_the_reading_is_not_read_on_at_the_offsets_of_the_old_one",
            "== ",
        ),
    ),
    "all-wait-for-a-member-that-stands-still": breakage(
        "of subscriptions that read together none waits for a sick one",
        "tailrace_spark.job.sharing:Seats.hand_out",
        drop("seat.closed = why"),
        Red(SEATED, "test_who_stands_still_is_left_behind_and_the_others_go_on", "is not None"),
    ),
    "a-taken-over-snapshot-begins-again": breakage(
        "a worker that takes over goes on at the range of the snapshot",
        "tailrace_server.worker.keeping:MetaNotes.read",
        constant("self._leases.snapshots(self._claim)", None),
        Red("unit/server/worker/test_keeping.py", "test_the_next_worker_has_the_ranges_of_the_last_one", "== "),
    ),
    "a-reset-is-of-the-same-reading": breakage(
        "what a reset reads is written by sinks that keep each change",
        "tailrace_server.model.transitions:restarted",
        replace("Topics(readings={ALL: reading})", "subscription.topics"),
        Red("unit/server/model/test_transitions.py", "test_what_is_read_again_is_another_reading", "== "),
    ),
    "tasks-write-at-the-places-of-kafka": breakage(
        "what a reset reads is written by sinks that keep each change, by tasks too",
        "tailrace_spark.source.readings:_ReadingWriter.write",
        unwrap("_moved(pieces, self.readings)", "pieces"),
        Red("unit/spark/source/test_readings.py", "test_tasks_write_each_reading_once", "== "),
    ),
    "a-lease-is-renewed-after-its-end": breakage(
        "a subscription has one owner at a time",
        "tailrace_server.meta.leases:Leases._owned",
        drop("subscribe.c.lease_until >= now()"),
        Red(CONTRACT, "test_a_lapsed_owner_is_refused[sqlite]", r"killed.renew\(1\) == \{\}"),
    ),
    "progress-is-kept-without-the-token": breakage(
        "a worker that has lost a subscription keeps no progress of it",
        "tailrace_server.meta.leases:Leases._same",
        together(
            drop("subscribe.c.owner == self.owner"),
            drop("subscribe.c.token == claim.token"),
        ),
        Red(CONTRACT, "test_a_lapsed_owner_is_refused[sqlite]", "DID NOT RAISE"),
    ),
    "a-claim-does-not-ask-whether-it-is-free": breakage(
        "a subscription has one owner at a time",
        "tailrace_server.meta.leases:Leases._claim",
        drop("self._free()"),
        Red(CONTRACT, "test_what_another_one_claims_at_the_same_moment_is_its_own[sqlite]", "assert"),
    ),
    "another-request-is-taken-for-the-same": breakage(
        "another request under a name that is taken is refused",
        "tailrace_server.meta.subscriptions:_same",
        constant("old != new", False),
        Red(CONTRACT, "test_another_request_under_the_name_is_refused", "DID NOT RAISE"),
    ),
    "what-is-released-keeps-its-lease": breakage(
        "what a worker releases is free at once",
        "tailrace_server.meta.leases:Leases.release",
        together(
            argument("statement.values(...)", "owner", None),
            argument("statement.values(...)", "lease_until", "now() + self._lease"),
        ),
        Red(CONTRACT, "test_what_is_released_is_free_at_once[sqlite]", r"== \[2\]"),
    ),
    "a-subscription-sets-what-it-likes": breakage(
        "a subscription leads nowhere but to a target of the servers' settings",
        "tailrace_server.operations.asking:_require_known",
        compare("option not in names", "in"),
        Red(
            "unit/server/operations/test_asking.py",
            "test_a_request_leads_nowhere_but_to_its_target[dwh-url-mysql://evil/d?local_infile=1]",
            "DID NOT RAISE",
        ),
    ),
    "offsets-are-kept-as-they-come": breakage(
        "what a caller sends is answered by 4xx where it is wrong",
        "tailrace_server.operations.operations:DirectOperations.reset",
        drop("require_offsets(offsets or {})"),
        Red(
            "unit/server/web/test_any_input.py",
            "test_what_was_an_error_of_the_server_is_refused[offset]",
            "Internal Server Error",
        ),
    ),
    "a-claim-that-is-not-run-is-kept": breakage(
        "a subscription has one owner, which runs it",
        "tailrace_server.worker.worker:Worker._keep_to",
        drop("self._leases.release(Claim(...))"),
        Red(WORKED, "test_a_claim_whose_answer_was_lost_is_run_at_the_next_beat", r"assert \(\[\]"),
    ),
    "a-failing-subscription-is-tried-every-second": breakage(
        "one that fails is tried again with growing pauses",
        "tailrace_server.worker.worker:Worker._failed",
        constant("max(1, attempts)", 1),
        Red(WORKED, "test_one_that_fails_waits_longer_each_time_and_the_others_run_on", "== begun"),
    ),
    "a-heir-never-says-that-it-works": breakage(
        "a failing one stays failing until it is seen to work",
        "tailrace_server.worker.worker:Worker._take_up",
        replace("State.FAILING", "State.CANCELLED"),
        Red(WORKED, "test_a_heir_knows_that_it_was_failing", r"assert \(?.*active"),
    ),
    "lost-records-are-passed-over": breakage(
        "what Kafka deleted before a subscription read it is said",
        "tailrace_server.worker.settings:beginning",
        replace("stops", "stops and (not stored)"),
        Red("unit/server/worker/test_settings.py", "test_what_kafka_lost_is_said_or_read_past", "DID NOT RAISE"),
    ),
    "a-filter-of-log-tables-is-kept": breakage(
        "a request with a wrong setting is refused at once",
        "tailrace_server.operations.asking:checked",
        drop("_require_fit(name, sink.type, shape)"),
        Red(
            "unit/server/operations/test_asking.py",
            "test_what_is_wrong_is_refused_with_its_name[more4-prints where the worker runs]",
            "DID NOT RAISE",
        ),
    ),
    "a-refused-request-is-repeated": breakage(
        "no answer has a secret of a sink",
        "tailrace_server.api.app:application",
        drop("app.exception_handler(RequestValidationError)(...)"),
        Red(SERVED, "test_no_answer_has_a_secret", "if SECRET in text"),
    ),
    "every-key-may-do-everything": breakage(
        "over HTTP nobody does what the role of the API key does not allow",
        "tailrace_server.api.access:require_role",
        argument("caller.role.may(needed)", 0, "Role.READ"),
        Red(SERVED, "test_every_route_asks_for_a_key_with_its_role[GET-/v1/audit-admin]", "assert"),
    ),
    "a-condition-with-from-is-written-as-it-is": breakage(
        "a request written as a statement is read as the same request",
        "tailrace_server.sql.running:render",
        constant("statements == [create]", True),
        Red("unit/server/sql/test_parsing.py", "test_a_request_as_text_is_read_as_the_same_request", "read_again"),
    ),
    "a-cut-backup-is-restored": breakage(
        "a backup is restored as it was, all or nothing",
        "tailrace_server.meta.backup:restore",
        constant("record.get('rows') != sum(counts.values())", False),
        Red("unit/server/meta/test_backup.py", "test_what_is_no_whole_backup_changes_nothing[sqlite]", "DID NOT RAISE"),
    ),
    "a-dry-run-alters": breakage(
        "a dry run changes nothing at all",
        "tailrace_server.operations.operations:DirectOperations.declare",
        unwrap("lines and (not dry_run)", "lines"),
        Red(
            "unit/server/cli/test_apply.py",
            "test_what_is_declared_becomes_true[direct]",
            r"assert apply\(changed\) == wanted",
        ),
    ),
    "a-form-of-another-session-counts": breakage(
        "a form counts with the token of its session alone",
        "tailrace_server.web.access:require_token",
        replace("compare_digest(...)", "form.get(TOKEN)"),
        Red(PAGE_ACCESS, "test_a_form_needs_the_token_of_its_session", "== 403"),
    ),
    "pages-of-other-sites-are-not-told-apart": breakage(
        "no page of another site changes anything by way of a browser",
        "tailrace_server.web.app:_is_of_another_site",
        constant("site in _OTHER_SITES", False),
        Red(PAGE_ACCESS, "test_no_other_sites_page_changes_anything[headers0]", "another site"),
    ),
    "tokens-for-other-audiences-count": breakage(
        "a token counts if the issuer has signed it for this server",
        "tailrace_server.oidc.tokens:Tokens._claims",
        argument("jwt.JWTClaimsRegistry(...)", "aud", "{'essential': True}"),
        Red(TOKENS, "test_a_token_is_refused_with_a_reason[of another audience]", "DID NOT RAISE"),
    ),
    "an-answer-to-somebody-else-counts": breakage(
        "nobody is signed in by an answer to an attempt of another browser",
        "tailrace_server.oidc.sign_in:SignIn.finish",
        replace("compare_digest(...)", "answer.get('state')"),
        Red(SIGN_IN, "test_nobody_is_signed_in_by_an_answer_to_somebody_else", "belongs to another attempt"),
    ),
    "an-id-token-of-another-attempt-counts": breakage(
        "an ID token counts for the attempt that it answers",
        "tailrace_server.oidc.tokens:Tokens.signed_in",
        drop("not compare_digest(...)"),
        Red(SIGN_IN, "test_an_id_token_that_does_not_count[changed0-answers another request to sign in]"),
    ),
    "tokens-never-end": breakage(
        "a token counts if it is good now",
        "tailrace_server.oidc.tokens:Tokens._claims",
        argument("jwt.JWTClaimsRegistry(...)", "leeway", "skew + 86400"),
        Red(TOKENS, "test_a_token_is_refused_with_a_reason[expired]", "DID NOT RAISE"),
    ),
    "all-callers-have-one-bucket": breakage(
        "a caller that asks too often gets 429, and others are answered",
        "tailrace_server.api.access:Access.admit",
        argument("chosen.wait(name)", 0, "''"),
        Red(LIMITS, "test_too_many_requests_of_a_key_are_refused_and_others_go_on", "429 == 200|== 200"),
    ),
    "left-out-tables-are-read": breakage(
        "tables of a pattern that do not fit are left out and named",
        "tailrace_server.worker.failures:Unfit.without",
        negate("not self.topics"),
        Red(
            "unit/server/worker/test_unfit.py",
            "test_a_table_that_does_not_fit_is_left_out_with_its_topic",
            "assert not",
        ),
    ),
    "a-filter-may-ask-for-any-column": breakage(
        "a filter that its table cannot be asked is refused at once",
        "tailrace_server.operations.checks:requirements",
        drop("yield (WHERE, lambda table: Filters(...).check(table))"),
        Red("unit/server/operations/test_checks.py", "test_a_pattern_goes_without_the_tables_that_do_not_fit"),
    ),
}
