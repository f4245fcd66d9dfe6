"""Who may ask the mock: which names are its own, and which requests a foreign page has made."""

from __future__ import annotations

import pytest

from providers.mock.guard import is_cross_site, is_own_host


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1:8025", True),
        ("192.168.1.7", True),
        ("[::1]:8025", True),
        ("[::ffff:127.0.0.1]:8025", True),
        ("localhost:8025", True),
        ("LOCALHOST.", True),
        ("inbox.localhost:8025", True),
        ("mock:8025", True),
        ("mock.mail.svc.cluster.local", True),
        ("inbox.staging.example.com", True),
        (None, True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("evil.example:8025", False),
        ("localhost.evil.example", False),
        ("127.0.0.1:80; script-src *", False),
        ("1.2.3.4.5", False),
        ("", False),
    ],
)
def test_which_names_are_our_own(host: str | None, own: bool) -> None:
    assert is_own_host(host, {"inbox.staging.example.com"}) is own


@pytest.mark.parametrize(
    ("method", "headers", "foreign"),
    [
        ("POST", {}, False),
        ("POST", {"Sec-Fetch-Site": "same-origin"}, False),
        ("POST", {"Sec-Fetch-Site": "same-origin", "Origin": "null"}, False),
        ("DELETE", {"Sec-Fetch-Site": "none"}, False),
        ("POST", {"Sec-Fetch-Site": "cross-site"}, True),
        ("PUT", {"Sec-Fetch-Site": "same-site"}, True),
        ("DELETE", {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:8025"}, True),
        ("POST", {"Origin": "http://127.0.0.1:8025"}, False),
        ("POST", {"Origin": "http://127.0.0.1:3000"}, True),
        ("POST", {"Origin": "http://evil.example"}, True),
        ("POST", {"Origin": "null"}, True),
        ("POST", {"Origin": ""}, True),
        ("GET", {"Sec-Fetch-Site": "cross-site"}, False),
        ("HEAD", {"Origin": "http://evil.example"}, False),
    ],
)
def test_what_a_foreign_page_asks_for_is_known_as_such(method: str, headers: dict[str, str], foreign: bool) -> None:
    assert is_cross_site(method, {"Host": "127.0.0.1:8025", **headers}) is foreign


def test_the_usual_port_need_not_be_named() -> None:
    assert not is_cross_site("POST", {"Host": "mock", "Origin": "http://mock"})
    assert not is_cross_site("POST", {"Host": "mock:80", "Origin": "http://mock"})
    assert not is_cross_site("POST", {"Host": "mock", "Origin": "https://mock"})
    assert is_cross_site("POST", {"Host": "mock:81", "Origin": "http://mock"})
