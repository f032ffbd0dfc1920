"""Dockerfiles as recipes. What can't be a step is refused with its line."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from e2b_dockerfile_utils import (
    DockerfileInstruction,
    DockerfileSyntaxError,
    ShellLex,
    chomp_heredoc_content,
    parse_dockerfile_ast,
    parse_heredoc,
)

from sandyard.e2b_api.builds.recipes import Kind, Recipe, Step
from sandyard.e2b_api.envd.paths import HOME, ROOT, USER
from sandyard.e2b_api.errors import BuildRefusedError

_WITHOUT_EFFECT = frozenset({"EXPOSE", "LABEL", "MAINTAINER", "VOLUME"})
_FLAGS: Mapping[str, frozenset[str]] = {"COPY": frozenset({"chown", "chmod"})}
_FIRST = Step("USER", [ROOT]), Step("WORKDIR", ["/"])
_LAST = Step("USER", [USER]), Step("WORKDIR", [HOME])
"""Unless it has others."""
_REFERENCE = re.compile(
    r"\$(\{?)([a-z_]\w*|[0-9]+|.)([#%/]?)", re.ASCII | re.DOTALL | re.IGNORECASE
)
_NESTED = re.compile(r"\$\{[^}]*\$\{")
_MOST_WORK = 1 << 20
"""What all words of a Dockerfile may cost: characters, and steps of their patterns, which are
powers of them."""


def with_dockerfile(recipe: Recipe, text: str, context: str | None) -> Recipe:
    """With the image, the steps and the command of this Dockerfile; `context` is the hash of the
    uploaded files that it copies from. Raises BuildRefusedError."""
    try:
        parsed = parse_dockerfile_ast(text)
    except DockerfileSyntaxError as error:
        raise BuildRefusedError(f"Dockerfile, line {error.line or 1}: {error}") from error
    reader = _Reader(parsed.escape_token, context)
    for each in parsed.instructions:
        reader.read(each)
    if reader.image is None:
        raise BuildRefusedError("Dockerfile, line 1: there is no FROM.")
    ends = {each.kind for each in reader.steps[len(_FIRST) :]}
    steps = [*reader.steps, *(each for each in _LAST if each.kind not in ends)]
    command = recipe.start_command or reader.start_command()
    return replace(recipe, template=None, image=reader.image, steps=steps, start_command=command)


@dataclass
class _Reader:
    escape: str
    context: str | None
    image: str | None = None
    steps: list[Step] = field(default_factory=lambda: [*_FIRST])
    known: dict[str, str] = field(default_factory=dict)
    commands: dict[str, DockerfileInstruction] = field(default_factory=dict)
    work_left: int = _MOST_WORK

    def read(self, line: DockerfileInstruction) -> None:
        flags = _flags(line)
        if self.image is None and line.name not in ("FROM", "ARG"):
            _refuse(line, "FROM must be first.")
        match line.name:
            case "FROM" if self.image is not None or len(line.args) != 1:
                _refuse(line, "only one stage without a name is supported.")
            case "FROM":
                self.image = self._expanded(line.args[0], line)
            case "ARG" | "ENV":
                self._define(line)
            case "WORKDIR" | "USER" if len(line.args) == 1:
                self._add("WORKDIR" if line.name == "WORKDIR" else "USER", line, *line.args)
            case "COPY":
                self._copy(line, flags)
            case "RUN" if line.args:
                self.steps.append(Step("RUN", [_script(line)]))
            case "CMD" | "ENTRYPOINT":
                self.commands[line.name] = line
            case name if name not in _WITHOUT_EFFECT:
                _refuse(line, f"{name} is not supported in this form.")

    def _define(self, line: DockerfileInstruction) -> None:
        """Values may refer to variables of the image, which only the sandbox knows."""
        if line.name == "ENV":
            pairs = list(zip(line.args[::3], line.args[1::3], strict=True))
        else:
            pairs = [each.partition("=")[::2] for each in line.args]
        for name, value in pairs:
            self.known[name] = self._expanded(value, line)
            if self.image is not None:
                plain = ShellLex(self.escape).process_word(value)
                self.steps.append(Step("ENV", [name, plain]))

    def _copy(self, line: DockerfileInstruction, flags: Mapping[str, str]) -> None:
        *sources, target = line.args or [""]
        if self.context is None or not sources or any(map(parse_heredoc, sources)):
            _refuse(line, "COPY needs uploaded files, which it names, and a target.")
        end = "/" if len(sources) > 1 and not target.endswith("/") else ""
        for each in sources:
            words = (each, target + end, flags.get("chown", ROOT), flags.get("chmod", ""))
            self._add("COPY", line, *words)

    def _add(self, kind: Kind, line: DockerfileInstruction, *words: str) -> None:
        hashed = self.context if kind == "COPY" else None
        self.steps.append(Step(kind, [self._expanded(each, line) for each in words], hashed))

    def _expanded(self, word: str, line: DockerfileInstruction) -> str:
        """Values that repeat others grow, and the cost of a pattern with the power of its stars:
        what a word can cost is calculated before."""
        references = _REFERENCE.findall(word)
        values = [self.known.get(name, "") for _, name, _ in references]
        size = len(word) + sum(map(len, values))
        patterns = sum(bool(brace and kind) for brace, _, kind in references)
        if patterns and size <= self.work_left:
            stars = sum(each.count("*") for each in (word, *values))
            nested = patterns if _NESTED.search(word) else 1
            size = patterns * size ** min(max(1, stars) + nested, 99)
        self.work_left -= size
        if self.work_left < 0:
            _refuse(line, "its variables are too long.")
        try:
            return ShellLex(self.escape, env=self.known, skip_unset_env=False).process_word(word)
        except ValueError as error:
            _refuse(line, str(error)[:200])

    def start_command(self) -> str | None:
        """ENTRYPOINT with the words of CMD, as Docker joins them."""
        entry, command = (self.commands.get(each) for each in ("ENTRYPOINT", "CMD"))
        if entry is None or not entry.json:
            return _command(entry or command)
        more = [] if command is None else command.args
        if command is not None and not command.json:
            more = ["/bin/sh", "-c", *more]
        return shlex.join([*entry.args, *more]) or None


def _flags(line: DockerfileInstruction) -> Mapping[str, str]:
    flags = dict(each.removeprefix("--").partition("=")[::2] for each in line.flags)
    if unknown := flags.keys() - _FLAGS.get(line.name, frozenset()):
        _refuse(line, f"{line.name} --{min(unknown)} is not supported.")
    return flags


def _command(line: DockerfileInstruction | None) -> str | None:
    if line is None or not line.args:
        return None
    return shlex.join(line.args) if line.json else line.args[0]


def _script(line: DockerfileInstruction) -> str:
    if not line.heredocs:
        return _command(line) or ""
    first = line.heredocs[0]
    if len(line.heredocs) > 1 or parse_heredoc(line.args[0].strip()) is None:
        ends = (f"{each.content}{each.name}\n" for each in line.heredocs)
        return "\n".join([line.args[0], "".join(ends)])
    script = chomp_heredoc_content(first.content) if first.chomp else first.content
    if script.startswith("#!"):
        _refuse(line, "RUN with a script of another interpreter is not supported.")
    return script


def _refuse(line: DockerfileInstruction, reason: str) -> NoReturn:
    raise BuildRefusedError(f"Dockerfile, line {line.start_line}: {reason}")
