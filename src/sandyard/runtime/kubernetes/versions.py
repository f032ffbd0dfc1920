"""Which runs have not changed, by the watches alone: a server that looks after many asks the agents
of those that have."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from sandyard.runtime.errors import RecordBrokenError
from sandyard.runtime.kubernetes import manifest, model
from sandyard.runtime.kubernetes.api import Object
from sandyard.runtime.kubernetes.informer import Informer
from sandyard.runtime.kubernetes.records import KubernetesRecords
from sandyard.runtime.model import Kind, RunId


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """What the objects of a run say, for as long as they are these. Its version is itself."""

    run_id: RunId
    pod_name: str
    pod: Object
    secret: Object
    deadline_at: float


class RunVersions:
    def __init__(self, pods: Informer, secrets: Informer, records: KubernetesRecords) -> None:
        self._pods = pods
        self._secrets = secrets
        self._records = records
        self._known: dict[str, _Known] = {}

    def of(self, kind: Kind, *, now: float) -> Mapping[RunId, object]:
        """None of a run that something has ended or should, or whose agent has news."""
        found = ((name, self._look(name, each)) for name, each in self._secrets.objects.items())
        self._known = {name: known for name, known in found if known is not None}
        return {
            each.run_id: each
            for each in self._known.values()
            if each.run_id.kind == kind and now < each.deadline_at
        }

    def _look(self, name: str, secret: Object) -> _Known | None:
        known, pods = self._known.get(name), self._pods.objects
        if known is not None and known.secret is secret and pods.get(known.pod_name) is known.pod:
            return known
        record = self._records.of(manifest.run_id_of(secret))
        with suppress(RecordBrokenError):
            pod, machine = pods.get(record.pod), record.machine()
            if pod is None or model.is_deleted(pod) or model.has_news(pod):
                return None
            is_ending = record.stop_is_requested() or record.ended(final=False) is not None
            if not is_ending and machine is not None:
                return _Known(record.run_id, record.pod, pod, secret, machine.deadline_at)
        return None
