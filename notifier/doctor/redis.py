"""Redis: is it there, quick enough, and may we do what hints take. Nothing is ever lost without it."""

from __future__ import annotations

import re

from notifier.coordination.client import BUDGET_S
from notifier.coordination.probe import Report, examine
from notifier.doctor.finding import Finding, failed, ok, warning
from notifier.domain.errors import NotReady
from notifier.settings import Settings
from notifier.store.probe import SETTING, address

OLDEST = (6, 2)


async def check(settings: Settings, whose: str) -> Finding:
    """Look at it, if there is one. `whose`: that of a `run`, where none is configured."""
    cost = f"mails start within {settings.poll_s:g} s (NOTIFIER_POLL_S) and not at once; none is lost or doubled"
    if not settings.redis_url:
        return ok("redis", f"we do without: {cost}")
    where = address(settings.redis_url).replace(SETTING, "NOTIFIER_REDIS_URL")
    try:
        report = await examine(settings.redis_url)
    except NotReady as error:
        todo = "start it or mend NOTIFIER_REDIS_URL; set it to nothing (NOTIFIER_REDIS_URL=) to do without"
        return failed("redis", f"{where}: {error}. Until then {cost}", "start `notifier run`" if whose else todo)
    return judge(report, where)


def judge(report: Report, where: str) -> Finding:
    """What a Redis that answers is good for."""
    what = f"{report.version or 'of unknown version'} at {where}, answers in {report.answer_s * 1000:.1f} ms"
    if report.refused:
        return warning(
            "redis",
            f"{what}; we may not {' and '.join(report.refused)}: some hints are missing, no mail is",
            "allow that to the user in NOTIFIER_REDIS_URL",
        )
    if report.full:
        return warning(
            "redis",
            f"{what}; it is full and throws nothing out: hints are missing, no mail is",
            "give it more memory, or maxmemory-policy volatile-ttl",
        )
    if report.answer_s > BUDGET_S:
        return warning(
            "redis",
            f"{what}: slower than {BUDGET_S * 1000:.0f} ms counts as away",
            "put it nearer to the workers",
        )
    found = re.match(r"(\d+)\.(\d+)", report.version)
    if found and (int(found[1]), int(found[2])) < OLDEST:
        return warning("redis", f"{what}; 6.2 is the oldest we test with", "upgrade it")
    eviction = f"; {report.eviction} may throw out hints, which is harmless" if report.eviction else ""
    return ok("redis", what + eviction)
