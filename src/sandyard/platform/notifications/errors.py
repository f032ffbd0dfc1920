"""What can go wrong with a notification."""

from sandyard.kit.errors import NotFoundError


class NotificationNotFoundError(NotFoundError):
    """You have no notification with this id. List your notifications to find it."""
