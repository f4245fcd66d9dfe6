"""Mails made harmless: their words, and their HTML without a way out."""

from __future__ import annotations

import time

import pytest

from providers.mock.plain import blocks_of_html, without_links


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>Hello <b>Ada</b>,</p><p>wel<i>co</i>me</p>", "Hello Ada, welcome"),
        ("<style>p{color:red}</style>a<!-- not this -->b<SCRIPT>x()</SCRIPT >c", "ab c"),
        ("3 &lt; 4 &amp; 5 &nbsp; &uuml;", "3 < 4 & 5 ü"),
        ("a < b", "a < b"),
        ("over\ntwo\nlines<p>and\nmore", "over two lines and more"),
        ("seen<style>never closed", "seen"),
        ("<a href='x'>link</a><br>next<table><tr><td>1<td>2", "link next 1 2"),
        ("", ""),
    ],
)
def test_the_words_of_html(html: str, text: str) -> None:
    assert " ".join(blocks_of_html(html)) == text


@pytest.mark.parametrize(
    "piece", ["<", "<style", "<!--", "<a ", "</style", "<a" + " " * 50, "&", "<style></styl", "<b <b ", "<p target="]
)
def test_nothing_a_mail_holds_takes_long(piece: str) -> None:
    evil = piece * (400_000 // len(piece))
    start = time.process_time()
    blocks_of_html(evil)
    without_links(evil)
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("html", "shut"),
    [
        ("<a href=x>x</a>", "<a target=_blank  href=x>x</a>"),
        ("<A\nhref=x target=_top>x", "<A target=_blank \nhref=x target=_top>x"),
        ("<a/href=x>", "<a target=_blank /href=x>"),
        (
            "<base target=_self><area><form>",
            "<base target=_blank  target=_self><area target=_blank ><form target=_blank >",
        ),
        ("<abbr>a</abbr><article>", "<abbr>a</abbr><article>"),
        ("<!doctype html><p>a < b", "<!doctype html><p>a < b"),
        ("", ""),
    ],
)
def test_a_link_opens_a_window_that_cannot_be_opened(html: str, shut: str) -> None:
    assert without_links(html) == shut
