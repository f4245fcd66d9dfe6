"""What a restore means for a decision made after it, and how its command reads a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import typer

from notifier.commands.restored import notes, read_time
from notifier.domain.restore import EARLY, SEVERAL_ACCOUNTS, Doubt, LostTime, Restore
from notifier.restore import Report
from notifier.store.restores import CancelableCount

NOW = datetime(2026, 11, 29, 10, tzinfo=UTC)
T = NOW - timedelta(days=2)
SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)


def a_restore(at: datetime = T, ahead: timedelta = timedelta(0), account: str = "mock:1") -> Restore:
    return Restore(at, NOW, at + ahead - EARLY, NOW + ahead, account)


@pytest.mark.parametrize(
    ("decided", "due", "since"),
    [
        (T - EARLY - DAY - SECOND, T - EARLY - DAY - SECOND, None),
        (T - EARLY - DAY, T - EARLY - DAY, T),
        (T - EARLY - SECOND, T - EARLY - SECOND, T),
        (T - HOUR, NOW, NOW),
        (T, T, T),
        (NOW - HOUR, NOW - HOUR, NOW - HOUR),
        (NOW, NOW, NOW),
        (NOW + SECOND, NOW + SECOND, None),
        (T, NOW, NOW),
        (T, NOW + SECOND, None),
    ],
)
def test_what_may_have_been_decided_and_due_in_the_lost_time_is_in_doubt(
    decided: datetime, due: datetime, since: datetime | None
) -> None:
    found = LostTime((a_restore(),)).doubt(decided, due, DAY)
    assert found == (None if since is None else Doubt(since, "mock:1"))


def test_business_time_ahead_is_taken_off_where_a_claim_looks() -> None:
    lost = LostTime((a_restore(ahead=DAY),), ahead=DAY + HOUR)
    assert lost.doubt(NOW + DAY, NOW + DAY, HOUR) == Doubt(NOW - HOUR, "mock:1")
    assert lost.doubt(T, T, HOUR) is None


def test_of_several_restores_the_earliest_counts_and_two_accounts_are_none() -> None:
    both = LostTime((a_restore(T - DAY), a_restore(T)))
    assert both.doubt(T, T, HOUR) == Doubt(T, "mock:1")
    assert both.doubt(T - 2 * HOUR, T - 2 * HOUR, HOUR) == Doubt(T - 2 * HOUR, "mock:1")
    two = LostTime((a_restore(T - DAY, account="mock:2"), a_restore(T)))
    assert two.doubt(T, T, HOUR) == Doubt(T, SEVERAL_ACCOUNTS)
    assert LostTime().doubt(T, T, HOUR) is None


def test_an_endless_age_leads_to_no_date() -> None:
    long_ago = datetime(1970, 1, 1, tzinfo=UTC)
    assert LostTime((a_restore(),)).doubt(long_ago, long_ago, timedelta.max) == Doubt(T, "mock:1")


def test_what_was_repeated_after_a_restore_and_lost_again_is_in_doubt() -> None:
    """The second backup was made right after the first restore: the follow-up fell due only after that."""
    first = Restore(T, T + DAY, T - EARLY, T + DAY, "mock:1")
    second = a_restore(T + DAY)
    decided, due = T + HOUR, T + HOUR + DAY
    assert LostTime((first,)).doubt(decided, due, 7 * DAY) is None
    assert LostTime((first, second)).doubt(decided, due, 7 * DAY) == Doubt(due, "mock:1")


@pytest.mark.parametrize(
    "text", ["2026-11-27T10:00:00Z", "2026-11-27 10:00", "2026-11-27T12:00:00+02:00", " 20261127T100000 "]
)
def test_a_time_without_a_zone_is_utc(text: str) -> None:
    assert read_time(text) == T


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-27", "20261127", "2026-13-27T10:00:00Z", "1764237600"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="2026-11-27T02:00:00Z"):
        read_time(text)


@pytest.mark.parametrize(
    ("newest", "words"),
    [(None, None), (T - SECOND, None), (T + SECOND, None), (T - HOUR, "twice"), (T + HOUR, "more is in doubt")],
)
def test_a_backup_and_a_time_that_do_not_fit_are_noticed(newest: datetime | None, words: str | None) -> None:
    report = Report(T, None, "mock:1", T - EARLY, T - EARLY, NOW, 0, 0, 0, 0, newest, CancelableCount(0, 0, ()), [])
    assert [words in note for note in notes(report) if words] == ([True] if words else [])
    assert bool(notes(report)) == bool(words)


def test_where_mails_went_in_batches_it_is_said_what_that_means() -> None:
    nothing = CancelableCount(0, 0, ())
    report = Report(T, None, SEVERAL_ACCOUNTS, T - EARLY, T - EARLY, NOW, 0, 0, 0, 0, None, nothing, [])
    assert ["batches" in note for note in notes(report)] == [True]
