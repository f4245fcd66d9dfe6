"""What an operator is told to do next."""

from __future__ import annotations

from notifier.commands.notification_view import advice, traceable

ROW = {"id": "i1", "state": "uncertain", "provider_key": "k1", "provider": "mock:1", "kind": "onboarding"}


def test_a_mail_is_looked_for_by_what_its_provider_knows() -> None:
    assert traceable(ROW) == "key k1"
    assert traceable({**ROW, "provider": None}) == "key k1"
    by_smtp = {**ROW, "provider": "smtp-keyless:1"}
    assert traceable(by_smtp) == "the mail whose Message-ID begins with <k1@"
    assert next(advice(by_smtp, [])).startswith("Look for the mail whose Message-ID begins with <k1@ at the provider.")
