"""The bodies and answers of commands, as the OpenAPI document describes them."""

import base64
import binascii
import signal
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Self

from pydantic import BaseModel, Field, StrictBool, StrictStr, model_validator

from sandyard.kit.clock import utc_time
from sandyard.kit.http.schemas import Documented, eg, example
from sandyard.kit.patterns import pattern
from sandyard.platform.http.fields import Answer, RequestBody, ShortName
from sandyard.platform.sessions.commands.output import Encoding
from sandyard.platform.sessions.commands.service import Result, Wait
from sandyard.runtime.sessions.model import WORKSPACE, Command, Output, Process, TerminalSize

_NO_NUL = pattern(r"^[^\x00]*$", "must have no NUL")

Text = Annotated[StrictStr, Field(max_length=128 * 1024, pattern=_NO_NUL)]
Argument = Annotated[StrictStr, Field(max_length=128 * 1024, pattern=_NO_NUL)]
VariableName = Annotated[
    StrictStr,
    Field(
        min_length=1,
        max_length=255,
        pattern=pattern(
            r"^[A-Za-z_][A-Za-z0-9_]*$", "must be letters, digits and _, and begin with no digit"
        ),
    ),
]
FolderPath = Annotated[StrictStr, Field(min_length=1, max_length=4095, pattern=_NO_NUL)]
User = Annotated[StrictStr, Field(min_length=1, max_length=64, pattern=_NO_NUL)]
Columns = Annotated[int, Field(ge=1, le=1000)]


class OnTimeout(StrEnum):
    KILL = "kill"
    LEAVE_RUNNING = "leave_running"


class Signal(StrEnum):
    HANGUP = "SIGHUP"
    INTERRUPT = "SIGINT"
    QUIT = "SIGQUIT"
    KILL = "SIGKILL"
    USER_1 = "SIGUSR1"
    USER_2 = "SIGUSR2"
    TERMINATE = "SIGTERM"
    CONTINUE = "SIGCONT"
    STOP = "SIGSTOP"
    WINDOW = "SIGWINCH"

    @property
    def number(self) -> int:
        return signal.Signals[self.value]


class TerminalBody(RequestBody):
    columns: Columns = 80
    rows: Columns = 24


class NewCommandBody(RequestBody):
    model_config = example(command=["python3", "-m", "pytest"], folder="app", timeout_sec=120)

    command: (
        Annotated[list[Argument], Field(min_length=1, max_length=1000)]
        | Annotated[Text, Field(min_length=1)]
    ) = Field(description="A program and its arguments, or a line for `/bin/sh -c`")
    env: dict[VariableName, Text] = Field(
        default_factory=dict, max_length=1000, description="In addition to the sandbox's variables"
    )
    folder: FolderPath = Field(WORKSPACE, description="Working directory")
    user: User | None = Field(None, description="`user` (default), or `root` if sandboxes have one")
    background: StrictBool = Field(False, description="Return at once, and let it run")
    timeout_sec: Annotated[float, Field(gt=0, le=3600)] = Field(
        60, description="How long to wait for it"
    )
    on_timeout: OnTimeout = Field(
        OnTimeout.KILL, description="What happens to it and its process group after `timeout_sec`"
    )
    has_input: StrictBool = Field(False, description="Whether its standard input stays open")
    terminal: TerminalBody | None = Field(None, description="Run it in a terminal of this size")
    tag: ShortName | None = Field(None, description="A name to find it again")
    encoding: Encoding = Encoding.TEXT

    def new(self) -> Command:
        words = ("/bin/sh", "-c", self.command) if isinstance(self.command, str) else self.command
        size = TerminalSize(self.terminal.columns, self.terminal.rows) if self.terminal else None
        return Command(
            arguments=tuple(words),
            environment=self.env,
            folder=self.folder,
            user=self.user,
            terminal=size,
            has_input=self.has_input,
            tag=self.tag,
        )

    def wait(self) -> Wait:
        return Wait(self.timeout_sec, kills=self.on_timeout is OnTimeout.KILL)


class ResultAnswer(BaseModel):
    stdout: str = Field(description="The last MiB; with a terminal, all of its output")
    stderr: str = Field(description="The last MiB")
    stdout_truncated: bool
    stderr_truncated: bool
    timed_out: bool
    encoding: Encoding

    @classmethod
    def of(cls, result: Result, encoding: Encoding) -> Self:
        stdout, stderr = result.written.stdout, result.written.stderr
        return cls(
            stdout=encoding.write(bytes(stdout.data)),
            stderr=encoding.write(bytes(stderr.data)),
            stdout_truncated=stdout.is_truncated,
            stderr_truncated=stderr.is_truncated,
            timed_out=result.timed_out,
            encoding=encoding,
        )


class CommandAnswer(Answer):
    command_id: str = eg("p7k2")
    arguments: list[str] = eg(["python3", "-m", "pytest"])
    folder: str = eg("/workspace/app")
    tag: str | None
    is_terminal: bool = eg(False)
    is_running: bool = eg(False)
    exit_code: int | None = eg(0, description="128 plus the signal number if a signal ended it")
    started_at: datetime = eg("2026-10-30T09:00:00Z")
    ended_at: datetime | None = eg("2026-10-30T09:00:02Z")
    result: ResultAnswer | None = eg(
        {
            "stdout": "12 passed\n",
            "stderr": "",
            "stdout_truncated": False,
            "stderr_truncated": False,
            "timed_out": False,
            "encoding": "text",
        },
        description="Of a command that did not run in the background",
    )

    @classmethod
    def of(cls, process: Process, result: ResultAnswer | None = None) -> Self:
        return super().of(
            process,
            command_id=process.id,
            started_at=utc_time(process.started_at),
            ended_at=None if process.ended_at is None else utc_time(process.ended_at),
            result=result,
        )


class CommandList(Documented):
    commands: list[CommandAnswer] = eg([], description="Oldest first")


class OutputPiece(Answer):
    stream: str = Field(description="`stdout`, `stderr`, or `terminal`")
    data: str
    offset: int = Field(description="Where to continue reading")
    skipped: int = Field(description="Bytes before it that are no longer stored")

    @classmethod
    def of(cls, output: Output, encoding: Encoding) -> Self:
        return super().of(output, data=encoding.write(output.data))


class OutputAnswer(Documented):
    command_id: str = eg("p7k2")
    output: list[OutputPiece] = eg(
        [{"stream": "stdout", "data": "12 passed\n", "offset": 10, "skipped": 0}]
    )
    next_offset: int = eg(10)
    is_complete: bool = eg(True, description="Whether it has ended and this is the last output")
    encoding: Encoding = eg("text")

    @classmethod
    def of(
        cls,
        process: Process,
        outputs: Iterable[Output],
        *,
        offset: int,
        encoding: Encoding,
        is_last: bool,
    ) -> Self:
        pieces = [OutputPiece.of(output, encoding) for output in outputs]
        return cls(
            command_id=process.id,
            output=pieces,
            next_offset=pieces[-1].offset if pieces else offset,
            is_complete=is_last and not process.is_running,
            encoding=encoding,
        )


class InputBody(RequestBody):
    data: Annotated[StrictStr, Field(max_length=1024 * 1024)] = eg("yes\n", "")
    encoding: Encoding = Encoding.TEXT
    close: StrictBool = eg(True, False, description="Close the input afterwards")

    @model_validator(mode="after")
    def _is_decodable(self) -> Self:
        self.sent_bytes()
        return self

    def sent_bytes(self) -> bytes:
        if self.encoding is Encoding.TEXT:
            return self.data.encode()
        try:
            return base64.b64decode(self.data, validate=True)
        except binascii.Error as error:
            raise ValueError("data must be base64") from error


class SignalBody(RequestBody):
    signal: Signal = eg("SIGINT", Signal.TERMINATE)
