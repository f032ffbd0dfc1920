"""Flows driven by hand: what comes back is written down, and the clock moves as they sleep."""

from typing import Any

from sandyard_client.calls import Calls
from sandyard_client.retrying import RetryPolicy
from sandyard_client.steps import Done, Flow, Send, Sleep, advance
from sandyard_client.wire import Answer, Lost, Request

SENT = Lost("reset", was_sent=True)
NEVER_SENT = Lost("refused", was_sent=False)


def answer(status: int, **headers: str) -> Answer:
    return Answer(status, {name.replace("_", "-"): value for name, value in headers.items()})


def low(least: float, _most: float) -> float:
    return least


class Script:
    """Drives a flow with these outcomes; its clock moves by what the flow sleeps."""

    def __init__(self, *outcomes: Answer | Lost) -> None:
        self._outcomes = list(outcomes)
        self.now = 0.0
        self.sent: list[Request] = []
        self.slept: list[float] = []

    def run(self, flow: Flow[Any]) -> Any:
        step = advance(flow)
        while not isinstance(step, Done):
            match step:
                case Send(request):
                    self.sent.append(request)
                    step = advance(flow, self._outcomes.pop(0))
                case Sleep(seconds):
                    self.slept.append(seconds)
                    self.now += seconds
                    step = advance(flow)
                case _:
                    raise AssertionError(step)
        return step.value

    def calls(self, **policy: float) -> Calls:
        return Calls(RetryPolicy(**policy), clock=lambda: self.now, draw=low)
