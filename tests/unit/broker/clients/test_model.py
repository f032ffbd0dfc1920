"""Decisions about clients and their tokens."""

import pytest

from sandyard.broker.clients.errors import (
    ClientExistsError,
    ClientNotFoundError,
    ClientTokenNotFoundError,
    TooManyClientTokensError,
)
from sandyard.broker.clients.model import (
    MOST_TOKENS,
    Caller,
    ClientScope,
    Limits,
    SentToken,
    decide_changed,
    decide_created,
    decide_deleted,
    decide_token_added,
    decide_token_revoked,
    parse_token,
    with_included,
)
from sandyard.kit.changes.transitions import Cause

CAUSE = Cause("operator", 1_000_000)
TOKEN = SentToken("acme", "abcdefghijkl", "s" * 43)
NEW = decide_created(None, "acme", Limits([ClientScope.ALLOCATE]), CAUSE).result
ACME = decide_token_added(NEW, TOKEN, None, CAUSE).result


def test_scopes_include_lesser_ones_and_never_the_calls_of_tracks() -> None:
    assert with_included([ClientScope.OPERATE]) == {ClientScope.OPERATE, ClientScope.READ}
    assert with_included([ClientScope.ADMIN]) == {
        ClientScope.ADMIN,
        ClientScope.OPERATE,
        ClientScope.READ,
    }
    assert with_included([ClientScope.ALLOCATE]) == {ClientScope.ALLOCATE}


def test_a_token_is_read_as_it_was_written() -> None:
    assert parse_token(TOKEN.text) == TOKEN
    for wrong in ("", "sbc-", TOKEN.text[:-1], f"{TOKEN.text}x", TOKEN.text.upper()):
        assert parse_token(wrong) is None


def test_another_secret_id_or_client_is_not_accepted() -> None:
    assert ACME.accepts(TOKEN, 1000)
    assert not ACME.accepts(SentToken("acme", "abcdefghijkl", "t" * 43), 1000)
    assert not ACME.accepts(SentToken("acme", "bcdefghijklm", "s" * 43), 1000)
    assert not NEW.accepts(TOKEN, 1000)


def test_a_token_is_in_force_until_before_its_end() -> None:
    ends = SentToken("acme", "mnopqrstuvwx", "e" * 43)
    client = decide_token_added(ACME, ends, 1060, CAUSE).result
    assert client.accepts(ends, 1059)
    assert not client.accepts(ends, 1060)
    later = decide_token_added(client, SentToken("acme", "x" * 12, "n" * 43), None, _at(1060))
    assert [each["token_id"] for each in later.result.tokens] == ["abcdefghijkl", "x" * 12]


def test_no_event_has_a_hash_and_a_revoked_token_leaves_none() -> None:
    added = decide_token_added(NEW, TOKEN, None, CAUSE)
    assert not set(added.result.hashes.values()) & set(str(added.events[0].data).split("'"))
    revoked = decide_token_revoked(ACME, "abcdefghijkl", CAUSE)
    assert (revoked.result.tokens, revoked.result.hashes) == ([], {})
    with pytest.raises(ClientTokenNotFoundError):
        decide_token_revoked(revoked.result, "abcdefghijkl", CAUSE)


def test_there_are_ten_tokens_at_the_most() -> None:
    client = NEW
    for number in range(MOST_TOKENS):
        token = SentToken("acme", f"{number:012}", "s" * 43)
        client = decide_token_added(client, token, None, CAUSE).result
    with pytest.raises(TooManyClientTokensError):
        decide_token_added(client, TOKEN, None, CAUSE)


def test_a_name_is_one_clients_and_its_sequences_go_on_by_the_time() -> None:
    with pytest.raises(ClientExistsError):
        decide_created(ACME, "acme", Limits([ClientScope.READ]), CAUSE)
    again = decide_created(None, "acme", Limits([ClientScope.READ]), _at(2000))
    assert again.result.sequence > decide_deleted(ACME, CAUSE).events[0].sequence  # type: ignore[operator]
    for decide in (decide_deleted, lambda client, cause: decide_changed(client, LIMITS, cause)):
        with pytest.raises(ClientNotFoundError):
            decide(None, CAUSE)


def test_a_caller_speaks_for_tracks_with_its_prefix() -> None:
    limits = Limits([ClientScope.ALLOCATE], "acme-", "10/minute", 5)
    caller = decide_changed(ACME, limits, CAUSE).result.caller
    assert caller == Caller("acme", frozenset({ClientScope.ALLOCATE}), "acme-", "10/minute", 5)
    assert caller.may_call_as("acme-1")
    assert not caller.may_call_as("acm-1")


LIMITS = Limits([ClientScope.READ])


def _at(now: int) -> Cause:
    return Cause("operator", now * 1000)
