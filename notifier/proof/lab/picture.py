"""What the lab found, as a picture: one strip a fault, one bar a strategy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from notifier.proof.lab.judge import Fault
from notifier.proof.lab.report import NOT_ASKED, cell
from notifier.proof.lab.run import Totals

# Okabe and Ito's colours, which people who see few colours can still tell apart.
COLOURS = {
    Fault.LOST: "#D55E00",
    Fault.DUPLICATED: "#0072B2",
    Fault.AFTER_LOGIN: "#CC79A7",
    Fault.WRONGLY_FAILED: "#E69F00",
}
INK, FAINT = "#222222", "#777777"


def draw(totals: Sequence[Totals], base: Path) -> list[Path]:
    """Write BASE.png and BASE.svg; the same figures give the same bytes."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "lab", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot

    figure, strips = pyplot.subplots(1, len(Fault), sharey=True, figsize=(10, 4.2), layout="constrained")
    places = range(len(totals))
    for strip, fault in zip(strips, Fault, strict=True):
        shares = [100 * total.faults[fault] / total.mails for total in totals]
        strip.barh(places, shares, color=COLOURS[fault], height=0.62)
        for place, total, share in zip(places, totals, shares, strict=True):
            text = cell(total, fault).partition(" ")[0]
            said = text if text == NOT_ASKED or not total.faults[fault] else f"{share:.1f} %"
            strip.text(share + 0.8, place, said, va="center", color=INK if total.faults[fault] else FAINT, fontsize=8)
        strip.set_title(fault.value, color=INK, fontsize=10)
        strip.set_xlim(0, max(10.0, max(shares) * 1.35))
        strip.xaxis.set_visible(False)
        strip.spines[["top", "right", "bottom"]].set_visible(False)
        strip.tick_params(left=False)
    strips[0].set_yticks(places, [total.strategy.title for total in totals])
    strips[0].get_yticklabels()[-1].set_fontweight("bold")
    strips[0].invert_yaxis()
    figure.suptitle(
        f"Share of mails that suffered it, {totals[0].seeds} seeds (each strip to its own scale)",
        fontsize=10,
        color=FAINT,
    )
    written = [base.with_name(f"{base.name}.{ending}") for ending in ("png", "svg")]
    figure.savefig(written[0], dpi=110, metadata={"Software": None})
    figure.savefig(written[1], metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    return written
