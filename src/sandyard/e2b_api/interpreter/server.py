"""Runs inside a sandbox: serves E2B's code interpreter with the available Jupyter kernels.

It uses only the standard library and jupyter_client, and nothing from outside the sandbox.
"""

import json
import os
import queue
import select
import shlex
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

PORT = 49999
HOME = "/home/user"
KERNELS = {
    "python": ("python3",),
    "javascript": ("javascript", "deno", "jslab"),
    "typescript": ("deno", "tslab"),
    "bash": ("bash",),
    "r": ("ir",),
    "java": ("java", "jjava"),
}
ALIASES = {"js": "javascript", "ts": "typescript"}
PACKAGES = f"{HOME}/.local"
"""Where code installs packages: the kernels' own folder is read-only."""
TYPES = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "application/x-e2b-data": "data",
    "application/x-e2b-chart": "chart",
}
FIRST = """
def _set_up():
    from IPython import get_ipython
    from IPython.core.formatters import BaseFormatter
    from traitlets import ObjectName, Unicode
    formatter = get_ipython().display_formatter
    def add(kind, type_name, convert):
        def format_value(self, value):
            # Not registered by type: matplotlib takes those of its figures away.
            if not any(each.__name__ == type_name for each in type(value).__mro__):
                return None
            try:
                return convert(value)
            except Exception:
                return None
        traits = {"format_type": Unicode(kind), "print_method": ObjectName("_not_used_")}
        kept = type("TypeFormatter", (BaseFormatter,), {**traits, "__call__": format_value})
        formatter.formatters[kind] = kept(parent=formatter)
        formatter.active_types = [*formatter.active_types, kind]
    def chart_of(figure):
        from e2b_charts import chart_figure_to_dict
        return chart_figure_to_dict(figure)
    add("application/x-e2b-chart", "Figure", chart_of)
    add("application/x-e2b-data", "DataFrame", lambda frame: frame.to_dict(orient="list"))
    try:
        get_ipython().run_line_magic("matplotlib", "inline")
    except Exception:
        pass
def _show_pictures():
    # Pillow's pictures are results when they are shown, and when they are saved to a file.
    from IPython.display import display
    from PIL.Image import Image
    save = Image.save
    def save_and_show(self, fp, *words, **named):
        save(self, fp, *words, **named)
        if isinstance(fp, str):
            display(self)
    Image.save = save_and_show
    Image.show = lambda self, *words, **named: display(self)
_set_up()
try:
    _show_pictures()
except ImportError:
    pass
del _set_up, _show_pictures
"""
SILENCE_SEC = 0.2
READY_SEC = 60


class NoKernelError(Exception):
    """There is no kernel of this language here."""


class Context:
    """A kernel; it runs one piece of code at a time."""

    def __init__(self, language: str, cwd: str) -> None:
        self.id = str(uuid.uuid4())
        self.language = language
        self.cwd = cwd
        self._turn = threading.Lock()
        self._manager = KernelManager(kernel_name=kernel_of(language))
        spec = self._manager.kernel_spec
        spec.argv = [runnable(spec.argv[0]), *spec.argv[1:]]
        Path(cwd).mkdir(parents=True, exist_ok=True)
        self._manager.start_kernel(cwd=cwd)
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=READY_SEC)
        self._set_up()

    def to_json(self) -> dict[str, str]:
        return {"id": self.id, "language": self.language, "cwd": self.cwd}

    def restart(self) -> None:
        self._manager.restart_kernel(now=True)
        self._client.wait_for_ready(timeout=READY_SEC)
        self._set_up()

    def end(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)

    def run(self, code: str, variables: dict[str, str], caller: socket.socket) -> Iterator[Any]:
        """The events of running the code. It is interrupted if the caller disconnects."""
        with self._turn:
            before = self._with_variables(variables)
            try:
                yield from self._run(code, caller)
            finally:
                if before:
                    self._quietly(before)

    def _run(self, code: str, caller: socket.socket) -> Iterator[Any]:
        asked = self._client.execute(code, store_history=True, allow_stdin=False)
        is_interrupted = False
        while True:
            try:
                message = self._client.get_iopub_msg(timeout=SILENCE_SEC)
            except queue.Empty:
                if not self._manager.is_alive():
                    yield error("KernelDied", "The kernel ended while the code ran.")
                    self.restart()
                    return
                if not is_interrupted and not is_open(caller):
                    is_interrupted = True
                    self._manager.interrupt_kernel()
                continue
            if message["parent_header"].get("msg_id") != asked:
                continue
            content, kind = message["content"], message["msg_type"]
            if kind == "status" and content["execution_state"] == "idle":
                return
            if (event := event_of(kind, content)) is not None:
                yield event

    def _set_up(self) -> None:
        if self.language == "python":
            self._quietly(FIRST)

    def _quietly(self, code: str) -> None:
        self._client.execute_interactive(
            code, silent=True, store_history=False, output_hook=lambda _: None, timeout=READY_SEC
        )

    def _with_variables(self, variables: dict[str, str]) -> str:
        """Set them, and return the code that restores the previous values."""
        if variables and self.language == "bash":
            given = (
                f'[ -z "${{{name}+x}}" ] || _old_{name}="${name}"\n'
                f"export {name}={shlex.quote(value)}"
                for name, value in variables.items()
            )
            self._quietly("\n".join(given))
            return "\n".join(
                f'[ -n "${{_old_{name}+x}}" ] && export {name}="$_old_{name}" || unset {name}\n'
                f"unset _old_{name}"
                for name in variables
            )
        if not variables or self.language != "python":
            return ""
        self._quietly(
            "import os as _os\n"
            f"_before = {{name: _os.environ.get(name) for name in {list(variables)!r}}}\n"
            f"_os.environ.update({variables!r})"
        )
        return (
            "for _name, _value in _before.items():\n"
            "    _os.environ.pop(_name, None)\n"
            "    if _value is not None: _os.environ[_name] = _value\n"
        )


def runnable(program: str) -> str:
    """The kernels were installed elsewhere: a missing program is next to the running Python."""
    found, beside = Path(program), Path(sys.executable).parent / Path(program).name
    is_missing = found.is_absolute() and not found.exists()
    return str(beside) if is_missing and beside.exists() else program


def kernel_of(language: str) -> str:
    there = KernelSpecManager().find_kernel_specs()
    for name in KERNELS.get(language, (language,)):
        if name in there:
            return name
    raise NoKernelError(
        f"There is no kernel for {language!r} here. Available kernels: {sorted(there)}."
    )


def language_of(body: dict[str, Any]) -> str:
    named = str(body.get("language") or "python").lower()
    return ALIASES.get(named, named)


def event_of(kind: str, content: dict[str, Any]) -> dict[str, Any] | None:
    if kind == "stream":
        return {"type": content["name"], "text": content["text"], "timestamp": time.time_ns()}
    if kind in ("execute_result", "display_data"):
        formats = {TYPES.get(name, name): value for name, value in content["data"].items()}
        formats |= {"text": unquoted(formats["text"])} if "text" in formats else {}
        known = set(TYPES.values())
        extra = {name: formats.pop(name) for name in list(formats) if name not in known}
        is_main = kind == "execute_result"
        return {"type": "result", "is_main_result": is_main, **formats, "extra": extra or None}
    if kind == "execute_input":
        return {"type": "number_of_executions", "execution_count": content["execution_count"]}
    if kind == "error":
        return error(content["ename"], content["evalue"], "\n".join(content["traceback"]))
    return None


def unquoted(text: str) -> str:
    """A string is shown as it is, without quotes."""
    is_quoted = len(text) > 1 and text.startswith("'") and text.endswith("'")
    return text[1:-1] if is_quoted else text


def error(name: str, value: str, traceback: str = "") -> dict[str, Any]:
    return {"type": "error", "name": name, "value": value, "traceback": traceback or value}


class Contexts:
    def __init__(self) -> None:
        self._contexts: dict[str, Context] = {}
        self._defaults: dict[str, str] = {}
        self._lock = threading.RLock()

    def create(self, language: str, cwd: str) -> Context:
        made = Context(language, cwd)
        with self._lock:
            self._contexts[made.id] = made
        return made

    def find(self, context_id: str) -> Context | None:
        with self._lock:
            return self._contexts.get(context_id)

    def default(self, language: str) -> Context:
        with self._lock:
            found = self._contexts.get(self._defaults.get(language, ""))
            if found is None:
                found = self.create(language, HOME)
                self._defaults[language] = found.id
            return found

    def list(self) -> list[Context]:
        with self._lock:
            return list(self._contexts.values())

    def remove(self, context_id: str) -> bool:
        with self._lock:
            found = self._contexts.pop(context_id, None)
        if found is None:
            return False
        found.end()
        return True


def is_open(connection: socket.socket) -> bool:
    ready, _, _ = select.select([connection], [], [], 0)
    try:
        return not ready or bool(connection.recv(1, socket.MSG_PEEK))
    except OSError:
        return False


contexts = Contexts()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/contexts":
            self._json(200, [each.to_json() for each in contexts.list()])
        elif self.path == "/health":
            self._json(200, "OK")
        else:
            self._json(404, {"message": "There is nothing here."})

    def do_DELETE(self) -> None:
        is_removed = contexts.remove(self.path.removeprefix("/contexts/"))
        self._json(200 if is_removed else 404, {} if is_removed else {"message": "No context."})

    def do_POST(self) -> None:
        try:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))) or "{}")
            self._post(body)
        except NoKernelError as missing:
            self._json(400, {"message": str(missing)})
        except (ValueError, TypeError, KeyError, AttributeError, OSError) as wrong:
            self._json(400, {"message": f"The request can't be done: {wrong}"})

    def _post(self, body: dict[str, Any]) -> None:
        parts = self.path.strip("/").split("/")
        if parts == ["execute"]:
            self._execute(body)
        elif parts == ["contexts"]:
            made = contexts.create(language_of(body), str(body.get("cwd") or HOME))
            self._json(201, made.to_json())
        elif len(parts) == 3 and parts[2] == "restart" and (found := contexts.find(parts[1])):
            found.restart()
            self._json(200, found.to_json())
        else:
            self._json(404, {"message": "Context not found."})

    def _execute(self, body: dict[str, Any]) -> None:
        asked, code = body.get("context_id"), body.get("code")
        if not isinstance(code, str):
            raise TypeError("`code` must be a string.")
        context = contexts.find(asked) if asked else contexts.default(language_of(body))
        if context is None:
            self._json(404, {"message": f"Context {asked} not found."})
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            variables = body.get("env_vars") or {}
            for event in context.run(code, variables, self.connection):
                self._chunk(json.dumps(event).encode() + b"\n")
            self._chunk(b"")
        except OSError:
            self.close_connection = True

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _json(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nobody reads the log."""


def let_code_install_packages() -> None:
    """By the pip of the kernels or of Debian. Kernels look only into folders that exist when they
    start."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    named = (f"lib/{version}/site-packages", f"local/lib/{version}/dist-packages")
    folders = [Path(PACKAGES, each) for each in named]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    os.environ["PIP_PREFIX"] = PACKAGES
    os.environ["PYTHONPATH"] = ":".join(map(str, folders))


if __name__ == "__main__":
    os.chdir(HOME)
    os.environ.pop("E2B_PYTHON", None)
    let_code_install_packages()
    server = ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
    threading.Thread(target=contexts.default, args=("python",), daemon=True).start()
    server.serve_forever()
