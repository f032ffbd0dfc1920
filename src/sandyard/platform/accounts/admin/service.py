"""Use cases of admins for accounts. Each reads the clock once."""

from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet

from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Transition, apply_decision
from sandyard.kit.concurrency.tasks import KeyedLocks
from sandyard.kit.ids import is_account_id, resource_id
from sandyard.kit.paging import Page
from sandyard.platform.access.principal import Principal, Role
from sandyard.platform.accounts import model
from sandyard.platform.accounts.context import AccountContext
from sandyard.platform.accounts.errors import AccountNotFoundError
from sandyard.platform.accounts.model import Account, AccountFilter, OtherAdmins
from sandyard.platform.entities.apply import BusyError, change
from sandyard.platform.entities.model import Listing
from sandyard.platform.projects.model import create_default_project

_ADMINS = "admins"
"""The lock of decisions that depend on the number of admins."""


class Administration:
    def __init__(self, context: AccountContext) -> None:
        self._context = context
        self._store = context.accounts
        self._locks = KeyedLocks()

    async def list_accounts(self, listing: Listing[AccountFilter]) -> Page[Account]:
        return await self._store.page_of_accounts(listing)

    async def get_account(self, account_id: str) -> Account:
        known = is_account_id(account_id)
        account = await self._store.find_account(account_id) if known else None
        if account is None or account.deleted_at is not None:
            raise AccountNotFoundError
        return account

    async def deactivated(self, account_ids: Collection[str]) -> AbstractSet[str]:
        """Those that are deactivated; unknown ids are not among them."""
        return await self._store.deactivated_accounts(account_ids) if account_ids else frozenset()

    async def activate(self, account_id: str, *, by: Principal) -> Account:
        cause = self._context.cause(by.actor)
        return await change(
            self._store,
            lambda: self.get_account(account_id),
            lambda account: model.activate(account, cause),
            lock=self._locks.of(account_id),
        )

    async def deactivate(self, account_id: str, *, by: Principal) -> Account:
        """Takes effect with the next request. OwnAccountError, LastAdminError."""
        cause = self._context.cause(by.actor)
        return await self._decide(
            account_id,
            lambda account, others: model.deactivate(
                account, others, by=by.account_id, cause=cause
            ),
        )

    async def give_role(self, account_id: str, role: Role, *, by: Principal) -> Account:
        """Takes effect with the next request; logins end. LastAdminError."""
        cause = self._context.cause(by.actor)
        return await self._decide(
            account_id, lambda account, others: model.change_role(account, role, others, cause)
        )

    async def create_admin(self, *, email: str, username: str, password: str) -> Account:
        """An admin whose address is verified by the first reset; AccountExistsError if the address
        or name is taken."""
        password_hash = await self._context.passwords.hash(password)
        cause = self._context.cause(actor("operator"))
        account = model.create_account(
            account_id=self._context.make.account_id(),
            email=email,
            username=username,
            full_name=None,
            password_hash=password_hash,
            role=Role.ADMIN,
            is_verified=False,
            cause=cause,
        )
        project = create_default_project(
            project_id=resource_id("prj"), account_id=account.result.account_id, cause=cause
        )
        await self._store.apply(account, project)
        return account.result

    async def _decide(
        self,
        account_id: str,
        decide: Callable[[Account, OtherAdmins], Transition[Account] | None],
    ) -> Account:
        async def decide_now() -> Transition[Account] | None:
            account = await self.get_account(account_id)
            return decide(account, await self._store.read_fact(OtherAdmins(account_id)))

        async with self._locks.of(_ADMINS):
            made = await apply_decision(decide_now, self._store.apply, busy=BusyError)
        return await self.get_account(account_id) if made is None else made.result
