"""Promises of the templates about who may publish and deploy."""

from typing import Any

import pytest

from tests.deploy.aws.templates import REGISTRY, Synthesised, deployment

GITHUB = "token.actions.githubusercontent.com"


def role(synthesised: Synthesised, name: str, role_name: str) -> dict[str, Any]:
    return synthesised.one(name, "AWS::IAM::Role", RoleName=role_name)


def who(found: dict[str, Any]) -> dict[str, Any]:
    """The conditions under which the role is given."""
    [statement] = found["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Action"] == "sts:AssumeRoleWithWebIdentity"
    conditions: dict[str, Any] = statement["Condition"]
    assert conditions["StringEquals"] == {f"{GITHUB}:aud": "sts.amazonaws.com"}
    return conditions


def actions(synthesised: Synthesised, name: str, logical_id: str) -> set[str]:
    policies = synthesised.of_type(name, "AWS::IAM::Policy").items()
    [policy] = [each for key, each in policies if key.startswith(logical_id)]
    found: set[str] = set()
    for statement in policy["PolicyDocument"]["Statement"]:
        assert statement["Effect"] == "Allow"
        listed = statement["Action"]
        found |= {listed} if isinstance(listed, str) else set(listed)
    return found


def test_images_are_published_by_tags_of_the_repository_alone(synthesised: Synthesised) -> None:
    publisher = role(synthesised, REGISTRY, "sandyard-publish")
    assert who(publisher)["StringLike"] == {
        f"{GITHUB}:sub": "repo:example/sandyard:ref:refs/tags/v*"
    }
    allowed = actions(synthesised, REGISTRY, "RegistryRoleDefaultPolicy")
    assert {each.partition(":")[0] for each in allowed} == {"ecr"}
    assert "ecr:PutImage" in allowed
    assert not {"ecr:BatchDeleteImage", "ecr:DeleteRepository"} & allowed
    synthesised.template(REGISTRY).has_resource_properties(
        "AWS::IAM::OIDCProvider",
        {"Url": f"https://{GITHUB}", "ClientIdList": ["sts.amazonaws.com"]},
    )


@pytest.mark.parametrize("name", ["small", "production"])
def test_a_service_is_deployed_by_its_environment_alone(
    synthesised: Synthesised, name: str
) -> None:
    own = deployment(name)
    deployer = role(synthesised, name, f"{own.name}-deploy")
    subject = f"repo:example/sandyard:environment:{own.environment}"
    assert who(deployer)["StringLike"] == {f"{GITHUB}:sub": subject}
    allowed = actions(synthesised, name, "SandyardDeployRoleDefaultPolicy")
    assert {"ecs:UpdateService", "codedeploy:CreateDeployment", "iam:PassRole"} <= allowed
    assert {each for each in allowed if each.startswith("secretsmanager:")} == {
        "secretsmanager:GetSecretValue",
        "secretsmanager:DescribeSecret",
    }
    assert not any("*" in each for each in allowed)


def test_without_a_repository_nobody_outside_may_deploy(synthesised: Synthesised) -> None:
    assert deployment("platform").github_repository is None
    roles = synthesised.of_type("platform", "AWS::IAM::Role").values()
    assert not [each for each in roles if GITHUB in str(each)]
