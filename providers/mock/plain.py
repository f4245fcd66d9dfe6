"""What a mail's HTML says without its powers; each step in time linear to the mail, whatever it holds."""

from __future__ import annotations

import html as markup
import re

HIDDEN = re.compile(r"<(style|script)\b|<!--", re.IGNORECASE)
# Both cases spelled out: letting the case not count takes three times as long.
INLINE_TAGS = (
    "a",
    "b",
    "big",
    "code",
    "em",
    "font",
    "i",
    "mark",
    "s",
    "small",
    "span",
    "strong",
    "sub",
    "sup",
    "u",
    "wbr",
)
INLINE = re.compile(rf"</?(?:{'|'.join((*INLINE_TAGS, *map(str.upper, INLINE_TAGS)))})(?:\s[^<>]*)?>")
TAG = re.compile(r"<[^<>]*>")
ENDS = {
    "style": re.compile(r"</style\b", re.IGNORECASE),
    "script": re.compile(r"</script\b", re.IGNORECASE),
    "": re.compile(r"-->"),
}


def blocks_of_html(html: str) -> list[str]:
    """The words between the tags, a piece for each block; tags inside a word or a sentence part nothing."""
    visible = one_line(INLINE.sub("", "".join(_visible(html))))
    blocks = map(one_line, markup.unescape(TAG.sub("\n", visible)).split("\n"))
    return [block for block in blocks if block]


def one_line(text: str) -> str:
    """The words, one space apart."""
    return " ".join(text.split())


LINK = re.compile(r"<(a|area|base|form)(?=[\s/>])", re.IGNORECASE)
FETCH = re.compile(r"<(link|i?frame|object|embed|portal|fencedframe)(?=[\s/>])", re.IGNORECASE)


def without_fetches(html: str) -> str:
    """The HTML with its elements that name other places to load made into such as mean nothing.

    A policy keeps a browser from loading what they name, not from connecting to where it is (rel=preconnect, a frame).
    A second `rel` in front does not help: what looks ahead in Chromium goes by the last.
    """
    return FETCH.sub(r"<x-\1 ", html)


def without_links(html: str) -> str:
    """The HTML for a sandboxed frame, where a link does nothing.

    A frame may always lead itself elsewhere, but nothing sandboxed opens a window: so every link is made to open one;
    of a name given twice the first counts. What slips through is stopped by the policy of the page round the frame.
    """
    return LINK.sub(r"<\1 target=_blank ", html)  # no quotes: they would end an attribute that only looks like a link


def _visible(html: str) -> list[str]:
    """The pieces outside comments, styles and scripts; one that is never closed hides the rest."""
    pieces, start = [], 0
    while hidden := HIDDEN.search(html, start):
        pieces.append(html[start : hidden.start()])
        end = ENDS[(hidden[1] or "").lower()].search(html, hidden.end())
        if end is None:
            return pieces
        start = end.end() if hidden[1] is None else end.start()
    pieces.append(html[start:])
    return pieces
