"""Whether all came to rest, and whether the record can be trusted at all: what contradicts itself proves nothing."""

from __future__ import annotations

from collections.abc import Iterator

from notifier.proof.checker.owed import OPEN
from notifier.proof.checker.record import Record
from notifier.proof.checker.verdict import Finding


def check(record: Record) -> list[Finding]:
    """Give what was still open, and each contradiction of the record with itself."""
    return [*_quiet(record), *_record(record)]


def _quiet(record: Record) -> Iterator[Finding]:
    quiet = record.quiet
    if quiet is None:
        yield record.finding("quiet", None, "the record ends before all had come to rest")
    elif not quiet.reached:
        still = [opinion for about in record.notifications.values() for opinion in about.opinions]
        still = [opinion for opinion in still if opinion.state in OPEN]
        names = [f"{opinion.user} {opinion.kind} {opinion.state}" for opinion in still]
        sentence = f"not quiet after {quiet.after_s:.0f} s; open: {', '.join(names) or 'nothing that is known'}"
        yield record.finding("quiet", None, sentence, quiet, *still)


def _record(record: Record) -> Iterator[Finding]:
    for answer in record.strays:
        yield record.finding("record", None, "an answer to a request that is not there, or a second one", answer)
    mails = {mail.id for mail in record.mails}
    accepted = {name: a for a in record.attempts if a.verdict == "accepted" for name in a.message_ids}
    for name, attempt in accepted.items():
        if name not in mails:
            sentence = "the provider says it accepted this call, and has no mail of it"
            yield record.finding("record", attempt.user, sentence, attempt)
    for mail in record.mails:
        if mail.id not in accepted:
            yield record.finding("record", mail.user, "the provider has this mail, and no call that brought it", mail)
