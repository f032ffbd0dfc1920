"""Dockerfiles: their steps, and what is refused with its line."""

import time

import pytest

from sandyard.e2b_api.builds.dockerfiles import with_dockerfile
from sandyard.e2b_api.builds.recipes import Recipe, RecipeBody, recipe_of
from sandyard.e2b_api.errors import BuildRefusedError

WHOLE = r"""# syntax=docker/dockerfile:1
ARG VERSION=1.4
FROM registry.example.com/base:$VERSION
LABEL maintainer=ann
ARG NAME=world
ENV GREETING="hello $NAME" PATH=/opt/bin:$PATH
WORKDIR /srv/$NAME
COPY --chown=app:www --chmod=0750 one two/ target
RUN apt-get update && \
    apt-get install -y nginx
RUN ["touch", "a b"]
RUN <<EOF
echo $GREETING
EOF
RUN cat <<EOF > file
content
EOF
EXPOSE 80
USER app:www
ENTRYPOINT ["serve", "--port"]
CMD ["80"]
"""


def read(text: str, context: str | None = "abc") -> Recipe:
    return with_dockerfile(recipe_of(RecipeBody()), text, context)


def test_its_instructions_are_steps() -> None:
    recipe = read(WHOLE)
    assert recipe.image == "registry.example.com/base:1.4"
    copied = ["app:www", "0750"]
    assert [(each.kind, list(each.arguments)) for each in recipe.steps] == [
        ("USER", ["root"]),
        ("WORKDIR", ["/"]),
        ("ENV", ["NAME", "world"]),
        ("ENV", ["GREETING", "hello $NAME"]),
        ("ENV", ["PATH", "/opt/bin:$PATH"]),
        ("WORKDIR", ["/srv/world"]),
        ("COPY", ["one", "target/", *copied]),
        ("COPY", ["two/", "target/", *copied]),
        ("RUN", ["apt-get update &&     apt-get install -y nginx"]),
        ("RUN", ["touch 'a b'"]),
        ("RUN", ["echo $GREETING\n"]),
        ("RUN", ["cat <<EOF > file\ncontent\nEOF\n"]),
        ("USER", ["app:www"]),
    ]
    assert {each.files_hash for each in recipe.steps if each.kind == "COPY"} == {"abc"}
    assert recipe.start_command == "serve --port 80"


def test_without_a_user_and_a_folder_sandboxes_have_their_own() -> None:
    recipe = read("FROM a\nCMD sleep 5")
    assert [list(each.arguments) for each in recipe.steps[2:]] == [["user"], ["/home/user"]]
    assert recipe.start_command == "sleep 5"
    assert read('FROM a\nENTRYPOINT run\nCMD ["x"]').start_command == "run"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("FROM second", "one stage"),
        ("ADD https://example.com/x /x", "ADD"),
        ("COPY --from=builder /a /b", "COPY --from"),
        ("COPY <<EOF /a\nx\nEOF", "COPY needs"),
        ("RUN --mount=type=secret,id=x true", "RUN --mount"),
        ("RUN <<EOF\n#!/usr/bin/python3\nEOF", "interpreter"),
        ("HEALTHCHECK CMD true", "HEALTHCHECK"),
        ("ONBUILD RUN true", "ONBUILD"),
        ('SHELL ["/bin/zsh", "-c"]', "SHELL"),
        ("STOPSIGNAL 9", "STOPSIGNAL"),
        ("COPY a", "target"),
        ("ENV A=${B", "B"),
        ("RUNN true", "RUNN"),
    ],
)
def test_what_is_not_supported_is_refused_with_its_line(line: str, reason: str) -> None:
    with pytest.raises(BuildRefusedError) as refused:
        read(f"FROM a\n# a comment\n\n{line}\n")
    assert "line 4: " in refused.value.message
    assert reason in refused.value.message


@pytest.mark.parametrize(
    "lines",
    [
        ["ARG a0=" + "x" * 100, *(f"ARG a{n + 1}={f'$a{n}' * 100}" for n in range(9))],
        ["ARG a=" + "x" * 30_000, *["USER ${a}"] * 3000],
        ["ARG a=" + "x" * 5000, "ARG b=${a//x/$a}", "ARG c=${b//x/$b}"],
        ["ARG a=" + "x" * 60, f"ARG b=${{a#{'*x' * 30}y}}"],
        ["ARG a=" + "x" * 60, f"ARG p={'*x' * 30}y", "ARG b=${a#$p}"],
        ["ARG @=" + "x" * 5000, *["USER $@$@$@$@"] * 5000],
        ["ARG a=" + "x" * 5000, *["USER ${a%*y}"] * 5000],
    ],
    ids=["doubled", "repeated", "replaced", "stars", "stars-of-a-value", "special", "patterns"],
)
def test_what_grows_without_end_is_refused_at_once(lines: list[str]) -> None:
    text = "\n".join(["FROM a", *lines])
    begun = time.process_time()
    with pytest.raises(BuildRefusedError, match="its variables are too long"):
        read(text)
    assert time.process_time() - begun < 5


def test_ordinary_patterns_are_expanded() -> None:
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    lines = ("FROM a", f"ENV P={path} V=1.22.3", "WORKDIR /go/${V%.*}/${V//./_}", "USER u${V%%.*}")
    steps = [list(each.arguments) for each in read("\n".join(lines)).steps]
    assert ["/go/1.22/1_22_3"] in steps
    assert ["u1"] in steps


@pytest.mark.parametrize("text", ["", "RUN true", "FROM a AS b", "FROM a\nCOPY x y"])
def test_what_is_no_dockerfile_of_one_stage_is_refused(text: str) -> None:
    with pytest.raises(BuildRefusedError, match=r"line \d: "):
        read(text, context=None)
