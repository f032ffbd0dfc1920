"""What admins do with accounts. Each use case reads the clock once."""

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.ids import IdMaker, is_account_id, resource_id
from sandyard.kit.ids import account_id as make_account_id
from sandyard.kit.paging import Page
from sandyard.platform.accounts.errors import AccountNotFoundError
from sandyard.platform.accounts.model import (
    Account,
    AccountFilter,
    AccountSort,
    Decide,
    activate,
    deactivate_by,
    give_role,
    new_account,
    normal_email,
)
from sandyard.platform.accounts.ports import AccountStore, Passwords
from sandyard.platform.principal import Principal, Role


class Administration:
    def __init__(
        self,
        store: AccountStore,
        *,
        passwords: Passwords,
        clock: Clock,
        make_account_id: IdMaker = make_account_id,
    ) -> None:
        self._store = store
        self._passwords = passwords
        self._clock = clock
        self._make_account_id = make_account_id

    async def list_accounts(
        self, only: AccountFilter, *, sort: AccountSort, limit: int, cursor: str | None
    ) -> Page[Account]:
        return await self._store.page_of_accounts(only, sort=sort, limit=limit, cursor=cursor)

    async def get_account(self, account_id: str) -> Account:
        known = is_account_id(account_id)
        account = await self._store.find_account(account_id) if known else None
        if account is None:
            raise AccountNotFoundError
        return account

    async def activate(self, account_id: str) -> Account:
        return await self._decide(account_id, activate)

    async def deactivate(self, account_id: str, *, by: Principal) -> Account:
        """In force with the next request. OwnAccountError, LastAdminError."""
        return await self._decide(account_id, deactivate_by(by.account_id))

    async def give_role(self, account_id: str, role: Role) -> Account:
        """In force with the next request; logins end. LastAdminError."""
        return await self._decide(account_id, give_role(role))

    async def create_admin(self, *, email: str, username: str, password: str) -> Account:
        """An admin whose address nobody verifies; AccountExistsError if something is taken."""
        account = new_account(
            account_id=self._make_account_id(),
            email=normal_email(email),
            username=username,
            full_name=None,
            password_hash=await self._passwords.hash(password),
            now=utc_time(self._clock.now()),
            role=Role.ADMIN,
        )
        await self._store.add_account(account, project_id=resource_id("prj"))
        return account

    async def _decide(self, account_id: str, decide: Decide) -> Account:
        now = utc_time(self._clock.now())
        known = is_account_id(account_id)
        account = await self._store.decide(account_id, decide, now=now) if known else None
        if account is None:
            raise AccountNotFoundError
        return account
