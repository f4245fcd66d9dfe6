"""The key: the same for ever, and never the same for two notifications."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notifier.domain.provider_key import provider_key

NAMESPACE = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")


# Known vectors: a build that derives another key would send everything in doubt a second time.
@pytest.mark.parametrize(
    ("user", "kind", "resend", "key"),
    [
        ("u_1", "onboarding", 0, "5f8e8a04-0789-5b98-8f64-b0a54b9523e0"),
        ("u_1", "onboarding", 1, "0b95bc85-9347-52da-ba8e-48d85c688d07"),
        ("zoë/ü", "weekly_digest@2026-W48", 0, "61a87550-4f62-5c5a-bec5-dfde393c4b4b"),
    ],
)
def test_the_key_is_what_it_always_was(user: str, kind: str, resend: int, key: str) -> None:
    assert provider_key(NAMESPACE, user, kind, resend) == key


def test_the_key_is_a_uuid_in_lower_case() -> None:
    key = provider_key(NAMESPACE, "u_1", "onboarding")
    assert str(uuid.UUID(key)) == key
    assert uuid.UUID(key).version == 5


# what the wire lets through as a user id, with what would tempt a separator
users = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20) | st.text(
    "ab1\u241f|@/:,. ", min_size=1, max_size=6
)
kinds = st.from_regex(r"[a-z][a-z0-9_.-]{0,10}(@[A-Za-z0-9-]{1,8})?", fullmatch=True)
identities = st.tuples(users, kinds, st.integers(0, 12))


@given(identities)
def test_the_key_is_uuid5_of_its_parts(identity: tuple[str, str, int]) -> None:
    user, kind, resend = identity
    parts = [user, kind, str(resend)] if resend else [user, kind]
    assert provider_key(NAMESPACE, user, kind, resend) == str(uuid.uuid5(NAMESPACE, "\x1f".join(parts)))


@given(identities, identities)
def test_two_notifications_never_share_a_key(left: tuple[str, str, int], right: tuple[str, str, int]) -> None:
    assert (provider_key(NAMESPACE, *left) == provider_key(NAMESPACE, *right)) == (left == right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (("ab", "c", 0), ("a", "bc", 0)),
        (("a", "b1", 0), ("a", "b", 1)),
        (("a", "b", 1), ("a", "b", 11)),
        (("a b", "c", 0), ("a", "b c", 0)),
    ],
)
def test_parts_do_not_run_into_each_other(left: tuple[str, str, int], right: tuple[str, str, int]) -> None:
    assert provider_key(NAMESPACE, *left) != provider_key(NAMESPACE, *right)


def test_another_installation_has_other_keys() -> None:
    assert provider_key(NAMESPACE, "u_1", "onboarding") != provider_key(uuid.UUID(int=0), "u_1", "onboarding")


def test_a_resend_has_a_number_or_is_none() -> None:
    with pytest.raises(AssertionError):
        provider_key(NAMESPACE, "u_1", "onboarding", -1)
