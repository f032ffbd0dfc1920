"""What a deployment may be: mistakes are told by the field, all at once."""

from pathlib import Path

import pytest

from deploy.aws.config import ConfigurationError, load_deployment
from tests.deploy.aws.templates import CONFIGURATIONS, ENVIRONMENT, NAMES, deployment

SMALL = (CONFIGURATIONS / "small.toml").read_text()


def load(tmp_path: Path, text: str, **environment: str) -> ConfigurationError:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as raised:
        load_deployment(path, ENVIRONMENT | environment)
    return raised.value


def test_every_configuration_in_the_repository_is_right() -> None:
    assert {path.stem for path in CONFIGURATIONS.glob("*.toml")} == set(NAMES)
    for name in NAMES:
        assert deployment(name).account == ENVIRONMENT["AWS_ACCOUNT_ID"]


def test_settings_of_the_environment_win() -> None:
    given = {"ECS_CLUSTER_NAME": "labs", "ECS_SERVICE_NAME": "labs-api", "IMAGE_TAG": "v0.2.0"}
    found = load_deployment(CONFIGURATIONS / "small.toml", ENVIRONMENT | given)
    assert (found.cluster_name, found.service_name, found.image_tag) == (
        "labs",
        "labs-api",
        "v0.2.0",
    )


def test_default_names_are_those_of_the_docs() -> None:
    found = deployment("small")
    assert (found.cluster_name, found.service_name) == ("sandbox-broker", "sandbox-broker-api")
    assert found.pool_table == "SandboxPool"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("least_tasks = 1", "least_tasks: must be 2 or more"),
        ("most_tasks = 1", "most_tasks: must be least_tasks or more"),
        ('rollout = "big-bang"', "rollout: must be one of rolling, blue-green"),
        ('billing = "free"', "billing: must be one of on-demand, provisioned"),
        ('sinks = ["kafka"]', "sinks: must be some of s3, sns, sqs"),
        ('allowed_networks = ["here"]', "allowed_networks: 'here' is no network"),
        ("log_retention_days = 31", "log_retention_days: must be one of"),
        ("nat_gateways = 0", "nat_gateways: must be 1 or more"),
        ("colour = 1", "colour: there is no such field"),
        (
            'api_gateway = true\nallowed_networks = ["203.0.113.0/24"]',
            "api_gateway: must not be used with allowed_networks",
        ),
    ],
)
def test_a_mistake_names_its_field(tmp_path: Path, line: str, told: str) -> None:
    assert told in str(load(tmp_path, f"{SMALL}\n{line}\n"))


def test_one_zone_is_not_enough(tmp_path: Path) -> None:
    text = SMALL.replace('["us-east-1a", "us-east-1b"]', '["us-east-1a"]')
    assert "zones: must be 2 or more zones of us-east-1" in str(load(tmp_path, text))


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    error = load(tmp_path, f"{SMALL}\nleast_tasks = 1\n", AWS_ACCOUNT_ID="mine")
    assert len(str(error).splitlines()) == 2


def test_a_missing_field_is_told(tmp_path: Path) -> None:
    text = "\n".join(line for line in SMALL.splitlines() if not line.startswith("provider_url"))
    assert str(load(tmp_path, text)) == "provider_url: must be set"


def test_a_missing_account_is_told_by_the_variable_to_set(tmp_path: Path) -> None:
    assert str(load(tmp_path, SMALL, AWS_ACCOUNT_ID="")) == "AWS_ACCOUNT_ID: must be set"
