"""Guards of the decision: one per user and kind, made by one event at a time, told to the sender as it is."""

from __future__ import annotations

from notifier.proof.guards.guard import Change, Chaos, Guard
from notifier.store import users

_RACES = "tests/integration/test_guards.py"
_INGEST = "tests/integration/test_ingest.py"

_NO_INDEX = (
    Change(
        "migrations/versions/0001_the_house.py",
        "DEFAULT clock_timestamp(),\n        CONSTRAINT outbox_once UNIQUE (user_id, kind)\n",
        "DEFAULT clock_timestamp()\n",
    ),
)
_NO_LOCK = Change(
    "notifier/store/users.py",
    users.LOCKED[users.LOCKED.index("        ON CONFLICT") :],
    "        ON CONFLICT (user_id) DO NOTHING\n    RETURNING u.user_id, true AS is_new)\n",
)

DECIDING = (
    Guard(
        "unique index",
        "two decisions, and so two mails, for one user and kind",
        _NO_INDEX,
        (
            "tests/integration/test_delivery.py::test_a_second_decision_for_one_kind_is_impossible",
            f"{_RACES}::test_of_two_decisions_at_once_one_stands",
        ),
        unseen="the user lock stands before it (`index and lock` takes both)",
    ),
    Guard(
        "user lock",
        "a signup and a login that miss each other",
        (_NO_LOCK,),
        (f"{_RACES}::test_a_login_beside_a_signup_in_flight_waits_for_it",),
        Chaos(seed=281, faults="pause", minutes=1.0, users=600),
    ),
    Guard(
        "index and lock",
        "one mail decided twice by two events at the same moment",
        (*_NO_INDEX, _NO_LOCK),
        (f"{_RACES}::test_of_two_decisions_at_once_one_stands",),
        Chaos(seed=2, faults="pause", users=500),
    ),
    Guard(
        "new user",
        "an event of somebody known, decided as if there were nothing to read",
        (Change("notifier/store/users.py", "u.xmax = 0 AS is_new", "true AS is_new"),),
        (f"{_RACES}::test_only_a_user_that_was_not_there_is_new",),
        unseen="the unique index stands behind it for what was decided, and the load's logins say nothing of a user",
    ),
    Guard(
        "time after the locks",
        "a login that waited, told that it came before the signup it waited beside",
        (
            Change(
                "notifier/store/acceptance.py",
                "FROM (SELECT count(*) FROM locked) AS all_of_them)",
                "FROM (SELECT) AS nobody)",
            ),
        ),
        (f"{_RACES}::test_an_event_that_waits_for_anothers_lock_is_later_than_what_came_meanwhile",),
        unseen="the load's events say when they occurred",
    ),
    Guard(
        "users in order",
        "two groups of events that wait for each other",
        (
            Change(
                "notifier/store/users.py",
                "     ORDER BY t.user_id\n        ON CONFLICT",
                "        ON CONFLICT",
            ),
        ),
        (f"{_RACES}::test_users_are_locked_in_their_order",),
        unseen="PostgreSQL ends one of two that wait for each other, and it is repeated",
    ),
    Guard(
        "events in order",
        "the same, over the ids of events",
        (
            Change(
                "notifier/store/acceptance.py",
                '     ORDER BY t.source COLLATE "C", t.id COLLATE "C"\n',
                "",
            ),
        ),
        (f"{_RACES}::test_events_are_entered_in_their_order",),
        unseen="PostgreSQL ends one of two that wait for each other, and it is repeated",
    ),
    Guard(
        "event id",
        "two events under one id, of two users, both answered as if they had been taken",
        (
            Change(
                "notifier/store/acceptance.py",
                'COLLATE "C", t.id COLLATE "C"\n',
                'COLLATE "C", t.id COLLATE "C" ON CONFLICT DO NOTHING\n',
            ),
        ),
        (f"{_RACES}::test_one_id_of_two_users_at_once_is_one_event",),
        unseen="the load never uses one id for two users",
    ),
    Guard(
        "fingerprint",
        "another event under a used id, answered as if it had been taken",
        (
            Change(
                "notifier/ingest/transaction.py",
                "met.answer is not None and met.fingerprint == event.fingerprint:",
                "met.answer is not None:",
            ),
        ),
        (f"{_INGEST}::test_a_repeat_is_answered_from_the_store_and_another_content_is_refused",),
        unseen="the load repeats what it said in the same words",
    ),
    Guard(
        "tombstone",
        "a mail to a user who was erased, asked for by a late event",
        (Change("notifier/domain/journey.py", "wanted = [] if user.erased else [kind", "wanted = [kind"),),
        ("tests/integration/test_erasure.py::test_a_later_event_is_taken_and_means_nothing",),
        unseen="the unique index stands behind it for what was decided, and the load erases nobody before",
    ),
    Guard(
        "idle time-out",
        "a frozen process that holds a user's lock for ever",
        (
            Change(
                "notifier/store/database.py",
                '"idle_in_transaction_session_timeout": _ms(settings.idle_in_transaction_timeout_s)',
                '"idle_in_transaction_session_timeout": "0"',
            ),
        ),
        ("tests/integration/test_database.py::test_a_session_has_the_patience_and_plans_we_count_on",),
        unseen="the rig thaws what it froze; until then only answers are late",
    ),
)
