"""The web application firewall: allowed networks, rate limits, and known attacks."""

from collections.abc import Iterator, Sequence
from typing import Any

from aws_cdk import aws_kms as kms
from aws_cdk import aws_wafv2 as waf
from constructs import Construct

from deploy.aws.config import Deployment
from deploy.aws.logs import log_group

_SECRET_HEADERS = ("authorization", "x-api-key", "cookie")
_WINDOW_SEC = 300
_OPERATOR_PATHS = ("/v1/admin",)
_VERSIONS = ("IPV4", "IPV6")


class Firewall(Construct):
    """Rules in this order: networks that may call the service, networks that may make operators'
    calls, the rate per address, and AWS's managed rules for known attacks."""

    def __init__(
        self, scope: Construct, deployment: Deployment, key: kms.IKey, resource_arn: str
    ) -> None:
        super().__init__(scope, "Firewall")
        self._deployment = deployment
        self.acl = waf.CfnWebACL(
            self,
            "Acl",
            name=deployment.name,
            scope="REGIONAL",
            default_action=waf.CfnWebACL.DefaultActionProperty(allow={}),
            visibility_config=_visible(deployment.name),
            rules=list(self._rules()),
        )
        waf.CfnWebACLAssociation(
            self, "Association", resource_arn=resource_arn, web_acl_arn=self.acl.attr_arn
        )
        self._log(key)

    def _rules(self) -> Iterator[waf.CfnWebACL.RuleProperty]:
        if networks := self._deployment.allowed_networks:
            outside = _none_of(self._sets("Allowed", networks))
            yield _rule("allowed-networks", 0, outside, block=True)
        if networks := self._deployment.operator_networks:
            outside = _none_of(self._sets("Operators", networks))
            yield _rule("operator-networks", 1, _all_of([_operator_call(), outside]), block=True)
        yield _rule("rate", 2, self._rate(), block=True)
        yield _rule("known-attacks", 3, _managed("AWSManagedRulesKnownBadInputsRuleSet"))

    def _rate(self) -> dict[str, Any]:
        """Calls through API Gateway, which limits them itself, come from its few addresses."""
        rate: dict[str, Any] = {
            "limit": self._deployment.requests_per_5_minutes,
            "aggregateKeyType": "IP",
            "evaluationWindowSec": _WINDOW_SEC,
        }
        if self._deployment.api_gateway:
            rate["scopeDownStatement"] = _none_of(self._sets("Own", [self._deployment.network]))
        return {"rateBasedStatement": rate}

    def _sets(self, name: str, networks: Sequence[str]) -> list[dict[str, Any]]:
        """One set for each IP version that has networks."""
        statements = []
        for version in _VERSIONS:
            own = [each for each in networks if (":" in each) == (version == "IPV6")]
            if own:
                made = waf.CfnIPSet(
                    self,
                    f"{name}{version}",
                    name=f"{self._deployment.name}-{name.lower()}-{version.lower()}",
                    scope="REGIONAL",
                    ip_address_version=version,
                    addresses=own,
                )
                statements.append({"ipSetReferenceStatement": {"arn": made.attr_arn}})
        return statements

    def _log(self, key: kms.IKey) -> None:
        """Logs refused requests, without their credentials."""
        name = f"aws-waf-logs-{self._deployment.name}"
        group = log_group(self, "Log", self._deployment, key, name)
        waf.CfnLoggingConfiguration(
            self,
            "Logging",
            resource_arn=self.acl.attr_arn,
            log_destination_configs=[
                f"arn:aws:logs:{self._deployment.region}:{self._deployment.account}:log-group:{name}"
            ],
            redacted_fields=[
                waf.CfnLoggingConfiguration.FieldToMatchProperty(single_header={"Name": each})
                for each in _SECRET_HEADERS
            ],
            logging_filter={
                "DefaultBehavior": "DROP",
                "Filters": [
                    {
                        "Behavior": "KEEP",
                        "Requirement": "MEETS_ANY",
                        "Conditions": [{"ActionCondition": {"Action": "BLOCK"}}],
                    }
                ],
            },
        ).node.add_dependency(group)


def _rule(
    name: str, priority: int, statement: dict[str, Any], *, block: bool = False
) -> waf.CfnWebACL.RuleProperty:
    """Our own rules block; a managed group uses its own actions."""
    action: dict[str, Any] = (
        {"action": {"block": {}}} if block else {"override_action": {"none": {}}}
    )
    return waf.CfnWebACL.RuleProperty(
        name=name,
        priority=priority,
        statement=statement,
        visibility_config=_visible(name),
        **action,
    )


def _visible(name: str) -> waf.CfnWebACL.VisibilityConfigProperty:
    return waf.CfnWebACL.VisibilityConfigProperty(
        cloud_watch_metrics_enabled=True, metric_name=name, sampled_requests_enabled=False
    )


def _none_of(statements: Sequence[dict[str, Any]]) -> dict[str, Any]:
    outside = [{"notStatement": {"statement": each}} for each in statements]
    return _all_of(outside)


def _all_of(statements: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return statements[0] if len(statements) == 1 else {"andStatement": {"statements": statements}}


def _operator_call() -> dict[str, Any]:
    """Lower case, decoded and normalized, so that no other spelling of the path bypasses it."""
    [path] = _OPERATOR_PATHS
    transformations = ("URL_DECODE", "NORMALIZE_PATH", "LOWERCASE")
    return {
        "byteMatchStatement": {
            "searchString": path,
            "fieldToMatch": {"uriPath": {}},
            "positionalConstraint": "STARTS_WITH",
            "textTransformations": [
                {"priority": place, "type": each} for place, each in enumerate(transformations)
            ],
        }
    }


def _managed(name: str) -> dict[str, Any]:
    return {"managedRuleGroupStatement": {"vendorName": "AWS", "name": name}}
