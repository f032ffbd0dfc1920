"""Why something is refused, where the system's own error does not say it."""


class RefusedError(Exception):
    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message)
        self.code = code
