"""The agent inside a machine with its own kernel."""

import subprocess
import sys

SIGNALLED_ELSEWHERE = """
import signal, threading, time
from sandyard.runtime.local.agent.inside import WAKE, Wake

wake = Wake()
signal.raise_signal(WAKE)
wake.clear()
never = threading.Event()
other = threading.Thread(target=never.wait, daemon=True)
other.start()

def send():
    time.sleep(0.1)
    for number in (signal.SIGUSR2, WAKE):
        signal.pthread_kill(other.ident, number)

signal.signal(signal.SIGUSR2, lambda *_: None)
threading.Thread(target=send).start()
wake.wait()
print("woken")
"""


def test_it_is_woken_by_a_signal_that_another_thread_received() -> None:
    words = [sys.executable, "-c", SIGNALLED_ELSEWHERE]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "woken\n"
