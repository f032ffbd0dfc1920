"""Accepted findings of the security rules, each with its reason."""

from aws_cdk import Acknowledgment, Validations
from constructs import IConstruct

RULES = "AwsSolutions"


def acknowledge(construct: IConstruct, rule: str, reason: str) -> None:
    """Record why this construct and its children may break a rule."""
    Validations.of(construct).acknowledge(Acknowledgment(id=f"{RULES}-{rule}", reason=reason))
