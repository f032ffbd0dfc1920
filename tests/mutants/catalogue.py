"""The bugs that the tests are known to catch: our own of the past, and those of peers."""

from tests.mutants.broker_pool import POOL
from tests.mutants.broker_service import SERVICE
from tests.mutants.e2b_api import E2B_API
from tests.mutants.model import Mutant
from tests.mutants.platform import PLATFORM
from tests.mutants.previews import PREVIEWS
from tests.mutants.shared import SHARED
from tests.mutants.simulated import SIMULATED
from tests.mutants.telemetry import TELEMETRY

MUTANTS: tuple[Mutant, ...] = (
    *POOL,
    *SERVICE,
    *SHARED,
    *TELEMETRY,
    *PLATFORM,
    *PREVIEWS,
    *SIMULATED,
    *E2B_API,
)
