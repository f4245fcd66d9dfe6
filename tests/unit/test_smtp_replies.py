"""What a mail server's reply leads to, step by step."""

from __future__ import annotations

import pytest

from providers.base import Accepted, Ambiguous, ConfigError, Rejected, RetryLater
from providers.smtp_replies import Step, classify

BEFORE_THE_DOT = [step for step in Step if step is not Step.DOT]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("2.0.0 Ok: queued as 4ZxQ1k3Yz9", "4ZxQ1k3Yz9"),
        ("2.0.0 Ok: queued as 0b0e6a0e-58a3-4d2d-8a8e-0a3a8f3c9d11", "0b0e6a0e-58a3-4d2d-8a8e-0a3a8f3c9d11"),
        ("OK id=1vPabc-0000000BxYz-3aBc", "1vPabc-0000000BxYz-3aBc"),
        ("2.0.0 3f9c2b1a Message accepted for delivery", "3f9c2b1a"),
        ("2.0.0 5ATBxyz0123456 Message accepted for delivery", "5ATBxyz0123456"),
        ("Ok", None),
        ("", None),
    ],
)
def test_a_dot_that_is_answered_with_2xx_is_a_mail_taken(text: str, name: str | None) -> None:
    assert classify(Step.DOT, 250, text) == Accepted(name)


@pytest.mark.parametrize("step", BEFORE_THE_DOT)
def test_only_the_dot_can_be_accepted(step: Step) -> None:
    assert classify(step, 250, "2.0.0 Ok: queued as X1") == RetryLater(f"smtp_{step}_250_2.0.0")


@pytest.mark.parametrize("step", Step)
@pytest.mark.parametrize(
    ("code", "text"), [(421, "4.3.2 closing"), (450, "4.7.1 greylisted"), (451, ""), (454, "4.7.0")]
)
def test_4xx_means_later_wherever_it_comes(step: Step, code: int, text: str) -> None:
    outcome = classify(step, code, text)
    assert isinstance(outcome, RetryLater)
    assert (outcome.answered, outcome.counted) == (True, False)


@pytest.mark.parametrize("step", [Step.RCPT, Step.DOT])
@pytest.mark.parametrize(("code", "text"), [(452, "4.2.2 mailbox full"), (552, "5.2.2 over quota")])
def test_a_full_mailbox_is_asked_a_few_times(step: Step, code: int, text: str) -> None:
    assert classify(step, code, text) == RetryLater("mailbox_full", counted=True)


def test_552_at_rcpt_is_too_many_and_elsewhere_too_big() -> None:
    assert classify(Step.RCPT, 552, "too many recipients") == RetryLater("smtp_rcpt_552")
    assert classify(Step.MAIL, 552, "5.3.4 message too big") == Rejected("smtp_mail_552_5.3.4")
    assert classify(Step.DOT, 552, "5.3.4 message too big") == Rejected("smtp_dot_552_5.3.4")


@pytest.mark.parametrize(
    ("step", "code", "text"),
    [
        (Step.RCPT, 550, "5.1.1 no such user"),
        (Step.RCPT, 550, ""),
        (Step.RCPT, 550, "5.5.0 Requested action not taken: mailbox unavailable"),
        (Step.DOT, 554, "5.5.0 no"),
        (Step.RCPT, 553, "5.1.3 bad address"),
        (Step.RCPT, 501, "5.1.3 bad recipient address syntax"),
        (Step.RCPT, 501, "what is that"),
        (Step.RCPT, 554, "5.7.1 relay access denied"),
        (Step.DOT, 554, "5.7.1 looks like spam"),
        (Step.DOT, 550, "5.6.0 content refused"),
        (Step.DATA, 554, "no valid recipients"),
    ],
)
def test_a_refusal_of_this_mail_is_for_good(step: Step, code: int, text: str) -> None:
    assert isinstance(classify(step, code, text), Rejected)


@pytest.mark.parametrize(
    ("step", "code", "text"),
    [
        (Step.CONNECT, 554, "5.7.1 your address is on a list"),
        (Step.HELLO, 550, "who are you"),
        (Step.LOGIN, 535, "5.7.8 wrong password"),
        (Step.LOGIN, 550, ""),
        (Step.MAIL, 530, "5.7.0 authentication required"),
        (Step.MAIL, 550, "5.7.1 sender not allowed"),
        (Step.MAIL, 553, "5.1.8 no such sender domain"),
        (Step.MAIL, 501, "5.5.4 syntax"),
        (Step.RCPT, 530, "5.7.0 log in first"),
        (Step.RCPT, 503, "5.5.1 MAIL first"),
        (Step.DATA, 502, ""),
        (Step.DOT, 550, "5.7.8 log in"),
    ],
)
def test_a_refusal_of_every_mail_is_the_operators(step: Step, code: int, text: str) -> None:
    assert isinstance(classify(step, code, text), ConfigError)


@pytest.mark.parametrize("code", [-1, 0, 199, 354, 399, 600])
def test_what_is_no_reply_is_a_doubt_after_the_dot_only(code: int) -> None:
    assert isinstance(classify(Step.DOT, code, "?"), Ambiguous)
    assert all(isinstance(classify(step, code, "?"), RetryLater) for step in BEFORE_THE_DOT)


def test_a_reason_never_quotes_what_the_server_said() -> None:
    assert classify(Step.RCPT, 550, "5.1.1 <ada@example.com>: user unknown") == Rejected("smtp_rcpt_550_5.1.1")
    assert classify(Step.RCPT, 550, "5.1.1ada") == Rejected("smtp_rcpt_550")
