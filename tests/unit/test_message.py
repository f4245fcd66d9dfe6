"""Rendering: the same bytes every time, names as they were typed, and what cannot be rendered is broken."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notifier.domain.message import Template, TemplateBroken, render
from notifier.journeys import load_journeys, load_templates
from notifier.settings import Settings
from providers.base import Message

FROM = "N <n@example.com>"
SHIPPED = load_templates(Settings(), load_journeys(Settings()))


def rendered(
    text: str = "", *, subject: str = "Hello", html: str = "", kind: str = "onboarding", **data: Any
) -> Message:
    template = Template("t", FROM, subject=subject, html=html, text=text)
    return render(template, data, to="ada@example.com", kind=kind)


def a_user(name: str | None = "Ada", **attributes: Any) -> dict[str, Any]:
    return {"id": "u_1", "name": name, "locale": None, "timezone": None, "attributes": attributes}


# ---------------------------------------------------------------------------------------------- names as typed


@pytest.mark.parametrize("name", ["<b>Ada</b>", "{{7*7}}", "{% raw %}", "{{ user.id }}", "{#", "Ada & Söhne", "'\"`"])
@pytest.mark.parametrize("kind", sorted(SHIPPED))
def test_a_name_appears_as_it_was_typed(kind: str, name: str) -> None:
    message = render(SHIPPED[kind], {"user": a_user(name), "data": {}}, to="a@b.c", kind=kind)
    assert name in message.subject
    assert name in message.text
    escaped = name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert escaped.replace("'", "&#39;").replace('"', "&#34;") in message.html
    assert "49" not in message.text


@pytest.mark.parametrize("kind", sorted(SHIPPED))
def test_nobody_has_to_have_a_name(kind: str) -> None:
    message = render(SHIPPED[kind], {"user": a_user(None), "data": {}}, to="a@b.c", kind=kind)
    assert "None" not in message.subject + message.text + message.html
    assert message.subject


@pytest.mark.parametrize(
    "end", ["\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
)
def test_a_line_break_makes_no_header(end: str) -> None:
    message = rendered(subject="Welcome, {{ name }}!", name=f"Ada{end}Bcc: eve@example.com{end}")
    assert message.subject == "Welcome, Ada Bcc: eve@example.com !"
    assert set(message.headers) == {"Auto-Submitted"}


@given(st.text(max_size=40))
def test_a_subject_is_one_line_whatever_the_name(name: str) -> None:
    subject = rendered(subject="Hi {{ name }}", name=name).subject
    assert len(subject.splitlines()) == 1
    assert subject == subject.strip()


# ---------------------------------------------------------------------------------------------- the same bytes


def test_the_same_template_and_data_give_the_same_message() -> None:
    data = {"user": a_user("Zoë"), "data": {"items": [1, 2.5, "x"], "total": 10**30}}
    messages = [
        render(SHIPPED["onboarding"], json.loads(json.dumps(data)), to="a@b.c", kind="onboarding") for _ in range(3)
    ]
    assert messages[0] == messages[1] == messages[2]


@pytest.mark.parametrize("part", ["text", "subject", "html"])
@pytest.mark.parametrize(
    "source",
    [
        "{{ [1, 2, 3] | random }}",
        "{{ lipsum() }}",
        "{{ user.items }}",
        "{{ user.keys() }}",
        "{{ [1, 2] | map('string') }}",
        "{{ joiner() }}",
        "{{ cycler }}",
    ],
)
def test_a_template_that_would_come_out_otherwise_each_time_is_broken(part: str, source: str) -> None:
    """Other bytes on a repeat are another mail to the provider, and the doubt could never be cleared."""
    with pytest.raises(TemplateBroken):
        rendered(**{part: source}, user=a_user())


def test_all_that_json_holds_can_be_shown() -> None:
    values = ["x", 1, 2.5, True, None, [1, "a"], {"a": 1}]
    shown = rendered("{% for value in values %}{{ value }};{% endfor %}", values=values).text
    assert shown == "x;1;2.5;True;None;[1, 'a'];{'a': 1};"
    html = rendered(
        html="{{ '<' | safe }}{{ '<' }}{{ [1, 2] | join(', ') }}{{ user.attributes | length }}", user=a_user()
    )
    assert html.html == "<&lt;1, 20"


def test_what_goes_with_a_mail() -> None:
    message = rendered("text\n", subject=" S ", html="<p>h</p>\n", kind="weekly@2026-W48")
    assert message == Message(
        sender="N <n@example.com>",
        to="ada@example.com",
        subject="S",
        html="<p>h</p>\n",
        text="text\n",
        headers={"Auto-Submitted": "auto-generated"},
        tags={"kind": "weekly_2026-W48"},
    )


def test_a_tag_holds_what_providers_take_in_one() -> None:
    """Letters, digits, underscores and dashes; a mail refused for its tag would be refused for ever."""
    assert rendered(kind="weekly.digest@2026-W48").tags == {"kind": "weekly_digest_2026-W48"}


def test_the_hash_names_the_content_and_nothing_else() -> None:
    one = Template("a", FROM, subject="s", html="h", text="t")
    assert one.hash == Template("b", FROM, subject="s", html="h", text="t").hash
    others = {
        Template("a", FROM, *parts).hash
        for parts in [("sh", "", "t"), ("s", "ht", ""), ("", "sh", "t"), ("s", "h", "T")]
    }
    assert len(others | {one.hash}) == 5
    assert one.hash == "miObeQBN1b4", "rows in the database name templates by it"


# ---------------------------------------------------------------------------------------------- broken templates


@pytest.mark.parametrize("part", ["text", "subject", "html"])
@pytest.mark.parametrize(
    "source",
    [
        "{{ nobody }}",
        "{{ user.surname }}",
        "{{ user.attributes.plan }}",
        "{% if nobody %}x{% endif %}",
        "{{ user.name",
        "{% for %}",
        "{{ user.name | shout }}",
        "{% include 'other' %}",
        "{{ 1 / 0 }}",
        "{{ user.name + 1 }}",
        "{{ range(10 ** 9) | length }}",
    ],
)
def test_what_cannot_be_rendered_is_said_to_be_broken(part: str, source: str) -> None:
    with pytest.raises(TemplateBroken):
        rendered(**{part: source}, user=a_user())


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__ }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ user.__init__.__globals__ }}",
        "{{ user['__class__'] }}",
        "{{ user | attr('__class__') }}",
        "{{ '{0.__class__}'.format(user) }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ self.__init__ }}",
        "{{ (lambda: 1)() }}",
    ],
)
def test_a_template_reaches_nothing_but_its_data(source: str) -> None:
    with pytest.raises(TemplateBroken):
        rendered(source, user=a_user())


@pytest.mark.parametrize("subject", ["", "  \n ", "{{ '' }}", "{{ 'x' * 901 }}"])
def test_a_subject_is_there_and_fits_a_header(subject: str) -> None:
    with pytest.raises(TemplateBroken, match="the subject has"):
        rendered(subject=subject)


def test_the_longest_subject() -> None:
    assert len(rendered(subject="{{ 'x' * 900 }}").subject) == 900
