"""Many seeds, every strategy: the counts, and the first bad case of each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from notifier.proof.lab.judge import Fault, announced, judge
from notifier.proof.lab.record import Mail, Record
from notifier.proof.lab.script import Script, write
from notifier.proof.lab.strategies.base import Strategy, World
from notifier.proof.lab.strategies.ours import Ours
from notifier.proof.lab.world import Run


@dataclass(frozen=True, slots=True)
class Story:
    """The first case of a fault: which seed, which mail, and what happened to it."""

    seed: int
    mail: Mail
    lines: tuple[str, ...]


@dataclass(slots=True)
class Totals:
    """What one strategy did to its mails over all seeds.

    `seeds_with`: in how many seeds a fault was seen at all. `uncertain`: how many it left to a person, saying so.
    `announced`: how many went out after a login that had been told so.
    """

    strategy: type[Strategy]
    seeds: int = 0
    mails: int = 0
    uncertain: int = 0
    announced: int = 0
    faults: dict[Fault, int] = field(default_factory=lambda: dict.fromkeys(Fault, 0))
    seeds_with: dict[Fault, int] = field(default_factory=lambda: dict.fromkeys(Fault, 0))
    first: dict[Fault, Story] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        """Whether no mail suffered anything."""
        return not any(self.faults.values())

    @property
    def unshown(self) -> list[Fault]:
        """Faults its description predicts and no seed showed."""
        return [fault for fault in Fault if fault in self.strategy.shows and not self.faults[fault]]

    def add(self, script: Script, strategy: Callable[[World], Strategy]) -> None:
        """Run one seed and count."""
        record = Run(script, strategy).to_the_end()
        self.seeds += 1
        self.mails += len(script.users) * len(self.strategy.kinds)
        self.uncertain += len(record.uncertain)
        self.announced += announced(record)
        for fault, mails in judge(script, record, self.strategy.kinds).items():
            self.faults[fault] += len(mails)
            self.seeds_with[fault] += bool(mails)
            if mails and fault not in self.first:
                self.first[fault] = self._tell(script.seed, record, mails, self.strategy.tells.get(fault, ""))

    def _tell(self, seed: int, record: Record, mails: Sequence[Mail], word: str) -> Story:
        """Choose the shortest story, among those that hold the word if any do."""
        told = [Story(seed, mail, tuple(record.story(mail, with_redis=self.strategy.uses_redis))) for mail in mails]
        fitting = [story for story in told if any(word in line for line in story.lines)]
        return min(fitting or told, key=lambda story: len(story.lines))


def compare(
    totals: Sequence[Totals], seeds: Sequence[int], users: int, ours: Callable[[World], Strategy] = Ours
) -> Iterator[int]:
    """Run every strategy in the world of each seed and add to its totals; yields each seed once it is done."""
    for seed in seeds:
        script = write(seed, users)
        for total in totals:
            total.add(script, ours if total.strategy is Ours else total.strategy)
        yield seed
