"""Guards of a batch: the same mails under the same key, whatever happens in between."""

from __future__ import annotations

from notifier.proof.guards.guard import Change, Chaos, Guard

_DELIVERIES = "notifier/store/deliveries.py"
_RESULTS = "notifier/store/results.py"
_TESTS = "tests/integration/test_batches.py"

BATCHING = (
    Guard(
        "batch: kept while in doubt",
        "a batch that may have been taken, sent again under other keys",
        (
            Change(
                _RESULTS,
                "batch_id = CASE WHEN t.doubt OR d.doubt_since IS NOT NULL THEN d.batch_id END",
                "batch_id = NULL",
            ),
        ),
        (f"{_TESTS}::test_a_lost_answer_is_repeated_with_the_same_members",),
        Chaos(seed=3, faults="provider", minutes=1.0, users=600, batch=10),
    ),
    Guard(
        "batch: taken over as it was",
        "the same for a batch whose worker died",
        (
            Change(
                _DELIVERIES,
                "           SET doubt_since = {_TAKEN_DOUBT},\n"
                '               {_CLAIM_SET.format(doubt=f"({_TAKEN_DOUBT})")}\n'
                "         WHERE d.id = ANY (ARRAY (\n"
                "                   SELECT m.id FROM m\n",
                "           SET doubt_since = {_TAKEN_DOUBT}, batch_id = NULL,\n"
                '               {_CLAIM_SET.format(doubt=f"({_TAKEN_DOUBT})")}\n'
                "         WHERE d.id = ANY (ARRAY (\n"
                "                   SELECT m.id FROM m\n",
            ),
        ),
        (f"{_TESTS}::test_a_batch_sent_by_a_worker_that_died_is_asked_about_as_it_was",),
        Chaos(seed=3, faults="provider,kill,freeze", minutes=1.0, users=600, batch=10),
    ),
    Guard(
        "batch: whole or not at all",
        "a repeat that lacks one whom somebody else still holds",
        (Change(_DELIVERIES, " HAVING bool_and(w.ready)", ""),),
        (f"{_TESTS}::test_a_member_whose_claim_still_runs_keeps_the_whole_batch",),
        unseen="all members of a batch are claimed, and go back, in one statement: only a bug parts them",
    ),
    Guard(
        "batch: no skip locked",
        "a repeat that lacks one whose row was just locked",
        (
            Change(
                _DELIVERIES,
                "         ORDER BY x.id\n           FOR UPDATE),",
                "         ORDER BY x.id\n           FOR UPDATE SKIP LOCKED),",
            ),
        ),
        (f"{_TESTS}::test_a_batch_in_doubt_is_taken_over_whole_or_not_at_all",),
        unseen="hardly anybody locks a row in doubt but a settle, which holds all of them",
    ),
    Guard(
        "batch: nothing in doubt joins",
        "a mail that may have been taken under its own key, sent again under a batch's",
        (Change(_DELIVERIES, "WHEN NOT d.alone AND d.doubt_since IS NULL\n", "WHEN NOT d.alone\n"),),
        (f"{_TESTS}::test_what_is_in_doubt_under_its_own_key_joins_no_batch",),
        Chaos(seed=3, faults="provider,kill", minutes=1.0, users=600, batch=10),
    ),
    Guard(
        "batch: who is stopped leaves first",
        "a repeat with other members than the call had",
        (
            Change(
                "notifier/worker/deliver.py",
                "        if ends and not await settle_first(ends):\n",
                "        if False:\n",
            ),
        ),
        (f"{_TESTS}::test_nobody_is_called_while_one_who_is_stopped_has_not_left",),
        unseen="it takes a death between the call and the settle of a batch with somebody stopped in it",
    ),
    Guard(
        "batch: one refused, each by itself",
        "a hundred mails that fail for one wrong address",
        (
            Change(
                "notifier/worker/deliver.py",
                "[_alone(result) if result.settlement.state is State.FAILED else result for result in results]",
                "results",
            ),
        ),
        (f"{_TESTS}::test_one_refused_member_harms_no_other",),
        unseen="the rig's provider refuses no address",
    ),
)
