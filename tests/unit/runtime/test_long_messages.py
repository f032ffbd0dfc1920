"""Long messages of machines and of git keep their end, where the error is."""

from sandyard.runtime.errors import refusal_of
from sandyard.runtime.repositories import clone_failure

LONG = "x" * 1000 + " the error"


def test_a_refusal_keeps_the_end_of_its_message() -> None:
    refusal = refusal_of({"refused": "COMMAND_REFUSED", "message": LONG})
    assert refusal is not None
    assert refusal.message.endswith("the error)")


def test_a_failed_clone_keeps_the_end_of_gits_message() -> None:
    assert clone_failure(f"Cloning\n{LONG}").endswith("the error")
