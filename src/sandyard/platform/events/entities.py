"""The Platform's transitions and events: every entity's table and every fact, in one place."""

from collections.abc import Mapping, Sequence
from typing import Any

from sandyard.kit.clock import Clock
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.events import EventWriter, SqlEventLog
from sandyard.kit.sql.transitions import EntityTable, FactReader, SqlTransitions
from sandyard.platform.accounts.model import OtherAdmins
from sandyard.platform.accounts.signups.sql import SIGNUPS
from sandyard.platform.accounts.sql import ACCOUNTS, read_other_admins
from sandyard.platform.api_keys.sql import API_KEYS
from sandyard.platform.billing.sql import BILLING_FACTS, BILLS
from sandyard.platform.images.model import ImageUse
from sandyard.platform.images.sql import IMAGE_USE, IMAGES
from sandyard.platform.notifications.sql import NOTIFICATIONS
from sandyard.platform.projects.model import ProjectUse
from sandyard.platform.projects.sql import PROJECTS, project_lock
from sandyard.platform.quotas.model import CountQuota
from sandyard.platform.quotas.sql import COUNT_QUOTAS
from sandyard.platform.sandboxes.sql.facts import SANDBOX_FACTS
from sandyard.platform.sandboxes.sql.store import SANDBOXES
from sandyard.platform.schema.tables import SCHEMA, events
from sandyard.platform.ssh_keys.sql import SSH_KEYS
from sandyard.platform.templates.sql import TEMPLATES
from sandyard.platform.usage.sql import USAGES
from sandyard.platform.variables.sql import VARIABLES
from sandyard.platform.volumes.model import VolumeUse
from sandyard.platform.volumes.sql import VOLUME_USE, VOLUMES

ENTITY_TABLES: Sequence[EntityTable[Any]] = (
    ACCOUNTS,
    SIGNUPS,
    API_KEYS,
    SSH_KEYS,
    PROJECTS,
    TEMPLATES,
    IMAGES,
    VOLUMES,
    NOTIFICATIONS,
    SANDBOXES,
    USAGES,
    BILLS,
    VARIABLES,
)
FACTS: Mapping[type, FactReader] = {
    CountQuota: COUNT_QUOTAS,
    ImageUse: IMAGE_USE,
    OtherAdmins: FactReader(lambda _: "platform admins", read_other_admins),
    ProjectUse: FactReader(lambda fact: project_lock(fact.project_id), lambda _, fact: fact),
    VolumeUse: VOLUME_USE,
    **SANDBOX_FACTS,
    **BILLING_FACTS,
}


def platform_transitions(database: Database, clock: Clock | None = None) -> SqlTransitions:
    """Applies changes of any of the Platform's entities, several in one transaction."""
    return SqlTransitions(database, ENTITY_TABLES, EventWriter(events, clock), facts=FACTS)


def platform_events(database: Database) -> SqlEventLog:
    subjects = [each.subject for each in ENTITY_TABLES]
    return SqlEventLog(database, events, part=SCHEMA, subjects=subjects)
