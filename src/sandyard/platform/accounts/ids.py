"""Makers of the ids and tokens of accounts."""

from dataclasses import dataclass

from sandyard.kit.ids import IdMaker, account_id, mail_token


@dataclass(frozen=True, slots=True)
class IdMakers:
    account_id: IdMaker = account_id
    token: IdMaker = mail_token
