"""Guards of the send: one key at one account while it is known, doubt kept, and a late worker's word refused."""

from __future__ import annotations

from notifier.proof.guards.guard import Change, Chaos, Guard

_RACES = "tests/integration/test_guards.py"
_DELIVERY = "tests/integration/test_delivery.py"
_WORKER = "tests/integration/test_worker.py"
_RESULTS = "notifier/store/results.py"
_DELIVERIES = "notifier/store/deliveries.py"
_DELIVER = "notifier/worker/deliver.py"
_DOMAIN = "notifier/domain/notification.py"

_FENCE = "WHERE d.id = t.id AND d.generation = t.g AND d.claimed_by IS NOT DISTINCT FROM $1\n"
_SETTLES_SENT = _FENCE + 27 * " " + "FOR UPDATE"
_SETTLES = _FENCE + 30 * " " + "FOR UPDATE"
_PUTS_BACK = _FENCE + 39 * " " + "FOR UPDATE"
_BEGINS = "WHERE d.id = $1 AND d.generation = $2 AND d.claimed_by IS NOT DISTINCT FROM $3"
_MAY_REPEAT = "return has_keys and same_account and window_left > timedelta(0)"


def _without_generation(text: str) -> str:
    return text.replace(" AND d.generation = t.g", "").replace(" AND d.generation = $2", " AND $2::int IS NOT NULL")


def _without_owner(text: str) -> str:
    return text.replace(" AND d.claimed_by IS NOT DISTINCT FROM $1", " AND $1::text IS NOT NULL").replace(
        " AND d.claimed_by IS NOT DISTINCT FROM $3", " AND $3::text IS NOT NULL"
    )


SENDING = (
    Guard(
        "settle: generation",
        "a worker that writes over what a later claim of its own did",
        tuple(Change(_RESULTS, text, _without_generation(text)) for text in (_SETTLES_SENT, _SETTLES)),
        (f"{_DELIVERY}::test_the_owner_alone_is_not_enough_nor_is_the_generation",),
        unseen="the owner stands beside it (`settle: both` takes both)",
    ),
    Guard(
        "settle: owner",
        "an old worker's word taken for the new one's, where a fail-over used a generation twice",
        tuple(Change(_RESULTS, text, _without_owner(text)) for text in (_SETTLES_SENT, _SETTLES)),
        (f"{_DELIVERY}::test_the_owner_alone_is_not_enough_nor_is_the_generation",),
        unseen="the generation stands beside it (`settle: both` takes both)",
    ),
    Guard(
        "settle: both",
        "a mail called failed by an old worker while the new one's call for it is under way",
        tuple(Change(_RESULTS, text, _without_generation(_without_owner(text))) for text in (_SETTLES_SENT, _SETTLES)),
        (f"{_DELIVERY}::test_a_worker_that_lost_its_claim_changes_nothing",),
        Chaos(seed=25, faults="pause,refuse", minutes=1.0, users=600),
    ),
    Guard(
        "results in order",
        "a worker and a login that wait for each other",
        (
            Change(
                _RESULTS,
                "statement: str, worker: str, results: Sequence[Result]) -> set[UUID]:\n"
                "    ordered = sorted(results, key=lambda result: result.claim.id)",
                "statement: str, worker: str, results: Sequence[Result]) -> set[UUID]:\n    ordered = results",
            ),
            Change(
                _RESULTS,
                "    ordered = sorted(results, key=lambda result: result.claim.id)\n    number, sent_at",
                "    ordered = results\n    number, sent_at",
            ),
        ),
        (f"{_RACES}::test_results_are_written_in_the_order_of_their_ids",),
        unseen="PostgreSQL ends one of two that wait for each other, and it is repeated",
    ),
    Guard(
        "give-back: generation",
        "a worker that gives back what a later claim of its own is sending",
        (Change(_RESULTS, _PUTS_BACK, _without_generation(_PUTS_BACK)),),
        (f"{_DELIVERY}::test_a_give_back_needs_owner_and_generation_too",),
        unseen="the owner stands beside it (`give-back: both` takes both)",
    ),
    Guard(
        "give-back: owner",
        "a worker that gives back what another one is sending",
        (Change(_RESULTS, _PUTS_BACK, _without_owner(_PUTS_BACK)),),
        (f"{_DELIVERY}::test_a_give_back_needs_owner_and_generation_too",),
        unseen="the generation stands beside it (`give-back: both` takes both)",
    ),
    Guard(
        "give-back: both",
        "a mail free to be claimed by a third worker while the second one is sending it",
        (Change(_RESULTS, _PUTS_BACK, _without_generation(_without_owner(_PUTS_BACK))),),
        (f"{_DELIVERY}::test_a_give_back_needs_owner_and_generation_too",),
        Chaos(seed=11, faults="pause", users=400, keyless=True),
    ),
    Guard(
        "begin: generation",
        "a call begun on a claim that was lost to the same worker",
        (Change(_DELIVERIES, _BEGINS, _without_generation(_BEGINS)),),
        (f"{_DELIVERY}::test_a_give_back_needs_owner_and_generation_too",),
        unseen="the owner stands beside it, and the last look before it",
    ),
    Guard(
        "begin: owner",
        "a call begun on a claim that another worker has",
        (Change(_DELIVERIES, _BEGINS, _without_owner(_BEGINS)),),
        (f"{_DELIVERY}::test_without_keys_only_begin_makes_doubt",),
        unseen="the generation stands beside it, and the last look before it",
    ),
    Guard(
        "provider key",
        "a second mail for every repeat",
        (
            Change(
                _DELIVER,
                "key = provider_key(self.runtime.namespace, claim.user_id, claim.kind, claim.resend_number)",
                "key = provider_key(self.runtime.namespace, claim.user_id, claim.kind, claim.generation)",
            ),
        ),
        (f"{_WORKER}::test_a_dead_workers_row_is_asked_about_under_the_same_key",),
        Chaos(seed=1, faults="kill"),
    ),
    Guard(
        "same message",
        "a repeat that goes to another address under the same key",
        (
            Change(
                _DELIVERIES,
                "CASE WHEN d.template_hash IS NULL THEN u.email ELSE d.recipient END",
                "u.email",
            ),
        ),
        (f"{_DELIVERY}::test_the_address_is_that_of_the_first_claim",),
        Chaos(seed=281, faults="pause", minutes=1.0, users=900),
    ),
    Guard(
        "same template",
        "a repeat with other bytes after a deploy",
        (
            Change(
                _DELIVERIES,
                "coalesce(d.template_hash, ($6::text[])[array_position($5::text[], d.kind_name)])",
                "($6::text[])[array_position($5::text[], d.kind_name)]",
            ),
        ),
        (f"{_DELIVERY}::test_the_template_is_that_of_the_first_claim",),
        unseen="the rig deploys one build with one template",
    ),
    Guard(
        "key window",
        "a repeat that the provider no longer recognises",
        (Change(_DOMAIN, _MAY_REPEAT, "return has_keys and same_account"),),
        (f"{_WORKER}::test_a_window_that_has_passed_ends_a_doubt_without_a_call",),
        Chaos(seed=8, faults="kill", window_s=2),
    ),
    Guard(
        "margin of the window",
        "a repeat allowed just before the key is forgotten, and made just after",
        (Change(_DELIVER, "margin_s = self.runtime.settings.claim_ttl_s\n", "margin_s = 0.0\n"),),
        (f"{_WORKER}::test_a_window_that_has_passed_ends_a_doubt_without_a_call",),
        unseen="it takes a call that is held up on its way until the window is over",
    ),
    Guard(
        "provider account",
        "a repeat at a provider that never saw the first",
        (Change(_DOMAIN, _MAY_REPEAT, "return has_keys and window_left > timedelta(0)"),),
        (f"{_WORKER}::test_a_doubt_is_not_asked_away_at_another_account",),
        unseen="the rig has one account",
    ),
    Guard(
        "no keys, no repeat",
        "a second mail by a provider that knows no keys",
        (Change(_DOMAIN, _MAY_REPEAT, "return same_account and window_left > timedelta(0)"),),
        (f"{_WORKER}::test_a_provider_without_keys_gets_a_second_call_from_nobody",),
        Chaos(seed=1, faults="kill,freeze", keyless=True),
    ),
    Guard(
        "begin",
        "a call without a key that leaves no doubt behind",
        (
            Change(
                _DELIVER,
                "or not (self._has_keys or await self._begin(held)):",
                "or False:",
            ),
        ),
        (f"{_WORKER}::test_a_provider_without_keys_gets_a_second_call_from_nobody",),
        Chaos(seed=1, faults="kill,freeze", keyless=True),
    ),
    Guard(
        "doubt",
        "a mail canceled, failed or asked for again too late, although its first call may have been taken",
        (
            Change(
                _DELIVERIES,
                '"CASE WHEN d.calling THEN coalesce(d.doubt_since, d.claimed_at) ELSE d.doubt_since END"',
                '"d.doubt_since"',
            ),
        ),
        (f"{_DELIVERY}::test_a_taken_over_claim_is_in_doubt_since_the_first_one",),
        Chaos(seed=8, faults="kill", keyless=True),
    ),
    Guard(
        "first doubt counts",
        "a key that seems younger than it is",
        (
            Change(
                _DELIVERIES,
                "CASE WHEN d.calling THEN coalesce(d.doubt_since, d.claimed_at)",
                "CASE WHEN d.calling THEN d.claimed_at",
            ),
        ),
        (f"{_DELIVERY}::test_a_taken_over_claim_is_in_doubt_since_the_first_one",),
        unseen="it takes a mail whose workers die one after the other until the window is over",
    ),
    Guard(
        "never more than we know",
        "a refused repeat called failed, although the first call may have been taken",
        (
            Change(
                _DOMAIN,
                "given_up = State.UNCERTAIN if doubt else State.FAILED",
                "given_up = State.FAILED",
            ),
        ),
        (f"{_WORKER}::test_a_refusal_for_good", "tests/unit/test_notification.py::test_never_say_more_than_we_know"),
        unseen="the rig's provider knows a mail it took before it thinks of refusing it",
    ),
    Guard(
        "attempts limit",
        "a mail that kills every worker that takes it, for ever",
        (Change(_DELIVER, "if claim.attempts > self.policy.attempts_max:", "if False:"),),
        (f"{_WORKER}::test_a_mail_that_kills_its_workers_does_not_do_so_for_ever",),
        unseen="no mail of the load kills its workers",
    ),
    Guard(
        "last look",
        "a call on a claim that is about to end, or has",
        (
            Change(
                _DELIVER,
                "return held.until - boot_clock() < self.runtime.settings.provider_timeout_s",
                "return False",
            ),
        ),
        (f"{_WORKER}::test_no_call_starts_late_or_while_calls_are_held_back",),
        unseen="the key stands behind it, and without keys `begin`",
    ),
    Guard(
        "suppression at the last step",
        "a mail to an address that complained after it was decided",
        (Change(_DELIVER, "if claim.suppressed is not None:", "if False:"),),
        (f"{_WORKER}::test_a_suppressed_address_gets_nothing",),
        unseen="nobody complains in the load",
    ),
    Guard(
        "lease: a hint only",
        "a Redis that holds up a dead worker's mail for as long as it likes",
        (
            Change(
                "notifier/worker/loop.py",
                "for row in look.expired if not row.overdue}",
                "for row in look.expired}",
            ),
        ),
        (f"{_WORKER}::test_a_renewed_lease_is_respected_for_one_claim_time",),
        unseen="no lie of the rig's Redis lasts longer than a take-over may take",
    ),
    Guard(
        "late evidence",
        "a mail left uncertain although a late worker knows that it was taken",
        (Change("notifier/worker/settling.py", "        if certain:\n", "        if False:\n"),),
        (f"{_WORKER}::test_a_certain_answer_of_a_lost_claim_ends_the_uncertainty",),
        unseen="the record of calls stands behind it; and `uncertain` would be no lie",
    ),
    Guard(
        "evidence: its own key",
        "a mail under a new key called sent because the old one was",
        (
            Change(
                _RESULTS,
                "AND s.state = 'uncertain' AND s.resend_number = t.resend_number",
                "AND s.state = 'uncertain'",
            ),
        ),
        (f"{_RACES}::test_evidence_counts_for_its_own_key_only",),
        unseen="it takes a late answer under a key that a person has given up meanwhile",
    ),
    Guard(
        "evidence on record: its own key",
        "the same, found in the record of calls",
        (
            Change(
                _RESULTS,
                "WHERE a.notification_id = s.id AND a.resend_number = s.resend_number",
                "WHERE a.notification_id = s.id",
            ),
        ),
        (f"{_RACES}::test_evidence_counts_for_its_own_key_only",),
        unseen="it takes a late answer under a key that a person has given up meanwhile",
    ),
    Guard(
        "settled by us",
        "a result that was written counted as lost, because its answer was",
        (
            Change(
                _RESULTS,
                "        ours |= await settled_by_us(conn, worker, unknown)\n",
                "        pass\n",
            ),
        ),
        (f"{_WORKER}::test_a_result_that_an_earlier_try_wrote_is_not_counted_lost",),
        unseen="a figure would be wrong, and nothing else",
    ),
)
