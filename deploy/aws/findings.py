"""Findings of the security rules that are as they should be here, each with its reason."""

from aws_cdk import Acknowledgment, Validations
from constructs import IConstruct

RULES = "AwsSolutions"


def acknowledge(construct: IConstruct, rule: str, reason: str) -> None:
    """Say why this construct, with all below it, may break a rule."""
    Validations.of(construct).acknowledge(Acknowledgment(id=f"{RULES}-{rule}", reason=reason))
