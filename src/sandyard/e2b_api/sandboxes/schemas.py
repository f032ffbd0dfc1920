"""Bodies and queries of the calls about sandboxes."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from sandyard.e2b_api.requests import Body, Number, PageQuery, Query, Refused, Texts
from sandyard.e2b_api.sandboxes.networks import NetworkBody
from sandyard.platform.sandboxes.network.traffic_rules import TrafficRules
from sandyard.runtime.network_model import Network

_YEAR_10000 = 253_402_300_800
"""In seconds since 1970: the first second beyond the range of `datetime`."""
State = Literal["running", "paused"]
BOTH: frozenset[State] = frozenset({"running", "paused"})


class TimeoutBody(Body):
    timeout: Number | None = None


class RefreshBody(Body):
    duration: Number | None = None


class AutoResume(Body):
    enabled: bool = False


class NewSandboxBody(TimeoutBody):
    template: str = Field(alias="templateID", min_length=1)
    metadata: Texts | None = None
    env_vars: Texts | None = None
    auto_pause: bool | None = None
    auto_resume: AutoResume | None = None
    network: NetworkBody | None = None
    allow_internet_access: bool | None = Field(default=None, alias="allow_internet_access")
    iam: Refused = None
    volume_mounts: Refused = None

    @property
    def is_public(self) -> bool:
        return self.network is None or self.network.allow_public_traffic is not False

    def traffic(self) -> tuple[Network, TrafficRules]:
        """Raises InvalidRequestError."""
        sent = self.network or NetworkBody()
        network, rules = sent.outgoing(has_internet=self.allow_internet_access is not False)
        return network, replace(rules, **sent.incoming())


class NewNetworkBody(NetworkBody):
    allow_internet_access: bool | None = Field(default=None, alias="allow_internet_access")


def _with_zone(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _split(value: Any) -> Any:
    return value.split(",") if isinstance(value, str) else value


class ListQuery(PageQuery):
    state: Annotated[frozenset[State], BeforeValidator(_split)] = BOTH
    metadata: str = ""
    template: str | None = None
    order: Literal["asc", "desc"] = "desc"
    started_after: Annotated[datetime, AfterValidator(_with_zone)] | None = None


class MetricsQuery(Query):
    """In Unix seconds."""

    start: float | None = Field(default=None, ge=0, lt=_YEAR_10000)
    end: float | None = Field(default=None, ge=0, lt=_YEAR_10000)


class AllMetricsQuery(Query):
    names: Annotated[list[str], BeforeValidator(_split)] = Field(default=[], alias="sandbox_ids")
