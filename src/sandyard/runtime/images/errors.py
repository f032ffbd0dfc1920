"""What can go wrong with an image."""

from sandyard.kit.errors import InvalidError, UnavailableError


class ImageRefusedError(InvalidError):
    """This image can't be used: it is not one, is damaged, too large, or for another processor."""


class RegistryError(UnavailableError):
    """The registry could not be reached, or did not answer as registries do. Try again."""

    code = "REGISTRY_UNAVAILABLE"


class RegistryRefusedError(ImageRefusedError):
    """The registry has no such image, or not for these credentials."""


class RegistryAddressError(ImageRefusedError):
    """The registry has a private address. Ask the operator to name it in IMAGE_REGISTRIES."""

    code = "REGISTRY_ADDRESS_REFUSED"
