"""A start on another engine than before: refused while the data is still on the old one."""

import time
from contextlib import suppress
from pathlib import Path

from sandyard.bootstrap.registry import selected_parts
from sandyard.kit.errors import UnavailableError
from sandyard.kit.store_states import Phase, StoreElsewhereError, StoreState, StoreStates
from sandyard.settings import Settings, SettingsError
from sandyard.wiring.stores import Store, other_stores, write_right


async def require_data_here(settings: Settings, data_dir: Path, *, start_empty: bool) -> None:
    """Raise SettingsError if a part has no data on its engine and some on another one that is
    configured; with `start_empty`, record instead that this is intended. An engine that is down is
    checked when it is up again, before its first use."""
    stores = [
        Store(settings, data_dir, spec.name, spec.engine_of(settings))
        for spec in selected_parts(settings)
    ]
    mistakes: list[str] = []
    for store in stores:
        if not other_stores(store):
            continue
        async with store.states() as states:
            with suppress(UnavailableError):
                if start_empty:
                    await _open(states)
                mistakes += await _mistakes(store, states)
    if mistakes:
        raise SettingsError("\n".join(dict.fromkeys(mistakes)))


async def _mistakes(store: Store, states: StoreStates) -> list[str]:
    try:
        await write_right(store, states).renew()
    except StoreElsewhereError as error:
        return [error.message, error.reason or ""]
    return []


async def _open(states: StoreStates) -> None:
    state = await states.read()
    is_unused = state is None or state.phase is Phase.RETURNED
    if is_unused and await states.is_empty():
        await states.change(state, StoreState(Phase.OPEN, at=int(time.time())))
