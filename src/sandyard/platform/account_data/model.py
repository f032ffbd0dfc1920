"""How the entities of a deleted account are removed, decided without any I/O."""

from typing import Any

from sandyard.kit.changes.transitions import Cause, Entity, Transition
from sandyard.platform.access.principal import Principal
from sandyard.platform.api_keys.model import AccountKey, revoke_key
from sandyard.platform.images import model as images
from sandyard.platform.images.model import Image
from sandyard.platform.notifications.model import Notification, delete_notification
from sandyard.platform.projects.model import Project, close_project
from sandyard.platform.ssh_keys.model import SshKey, remove_key
from sandyard.platform.templates.model import Template, delete_template
from sandyard.platform.variables.model import Variable, remove_variable
from sandyard.platform.volumes import model as volumes
from sandyard.platform.volumes.model import Volume


def remove_with_account(entity: Entity, owner: Principal, cause: Cause) -> Transition[Any]:
    match entity:
        case AccountKey():
            return revoke_key(entity, cause)
        case SshKey():
            return remove_key(entity, cause)
        case Template():
            return delete_template(entity, by=owner, cause=cause)
        case Image():
            return images.remove_with_account(entity, cause)
        case Volume():
            return volumes.remove_with_account(entity, cause)
        case Variable():
            return remove_variable(entity, cause)
        case Notification():
            return delete_notification(entity, cause)
        case Project():
            return close_project(entity, cause)
        case _:
            raise TypeError(f"{type(entity).__name__} is nothing that an account leaves")
