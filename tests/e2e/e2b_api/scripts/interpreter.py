"""The calls of E2B's code interpreter, both ways of its Python SDK.

Run with E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL set; it ends with 0 if all is well.
"""

import asyncio
import base64
import os
import time

import httpx
from e2b import SandboxException
from e2b_code_interpreter import AsyncSandbox, Sandbox
from e2b_code_interpreter.charts import BoxAndWhiskerChart

CHART = """
import matplotlib.pyplot as plt
plt.bar(["a", "b"], [1, 2])
plt.title("Two bars")
plt.show()
"""


BOXES = """
import matplotlib.pyplot as plt
plt.boxplot([[1, 2, 3, 4, 5], [2, 4, 6, 8, 10]], labels=["a", "b"], patch_artist=True)
plt.show()
"""


def main() -> None:
    sandbox = Sandbox.create(timeout=180, envs={"SIZE": "small"})
    try:
        variables(sandbox)
        state_and_output(sandbox)
        charts(sandbox)
        pictures(sandbox)
        contexts(sandbox)
        languages(sandbox)
        refusals(sandbox)
        packages(sandbox)
        sandbox.pause()
        resumed = Sandbox.connect(sandbox.sandbox_id)
        assert resumed.run_code("open('kept').read()").text == "it is"
        assert resumed.run_code("import os; os.environ['SIZE']").text == "small"
        again(resumed)
    finally:
        sandbox.kill()


def variables(sandbox: Sandbox) -> None:
    """The sandbox's own, and those of one execution in their place."""
    for language, code in (
        ("python", "import os; print(os.environ['SIZE'])"),
        ("bash", "echo $SIZE"),
    ):
        for envs, told in (({}, "small"), ({"SIZE": "large"}, "large"), ({}, "small")):
            run = sandbox.run_code(code, language=language, envs=envs)
            assert "".join(run.logs.stdout) == f"{told}\n", run


def again(sandbox: Sandbox) -> None:
    """No command line shows or matches the interpreter; whoever ends it finds another one."""
    assert sandbox.commands.list() == []
    sandbox.run_code("kept = 42")
    for pattern in ("http.server", "KernelManager", "jupyter"):
        sandbox.commands.run(f"pkill -9 -f '[{pattern[0]}]{pattern[1:]}' || true")
    assert sandbox.run_code("kept").text == "42"
    sandbox.commands.run("pkill -9 -f kernels/bin/[p]ython")
    for _ in range(100):
        try:
            told = sandbox.run_code("6 * 7").text
        except (SandboxException, httpx.HTTPError):
            time.sleep(0.1)
        else:
            assert told == "42"
            return
    raise AssertionError("it did not come back")


WHEEL = """
import zipfile
with zipfile.ZipFile("tiny-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("tiny.py", "SIZE = 1")
    about = "tiny-1.0.dist-info"
    wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n")
    made = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    wheel.writestr(f"{about}/WHEEL", made)
    wheel.writestr(f"{about}/RECORD", "")
"""


def packages(sandbox: Sandbox) -> None:
    """What code installs can be imported in the running kernel."""
    for install in ("!pip install", "%pip install --force-reinstall"):
        sandbox.run_code(WHEEL)
        run = sandbox.run_code(f"{install} --no-index ./tiny-1.0-py3-none-any.whl")
        assert run.error is None, run
        assert sandbox.run_code("import tiny; tiny.SIZE").text == "1", run


def refusals(sandbox: Sandbox) -> None:
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49999"}
    url = f"{os.environ['E2B_SANDBOX_URL']}/execute"
    refused = httpx.post(url, headers=headers, json={"code": 5})
    assert (refused.status_code, "must be a string" in refused.text) == (400, True), refused.text
    for name in ("js", "javascript"):
        try:
            sandbox.run_code("1", language=name)
        except SandboxException as error:
            assert "no kernel for 'javascript'" in str(error)  # noqa: PT017 - no test
        else:
            raise AssertionError(name)


def state_and_output(sandbox: Sandbox) -> None:
    sandbox.run_code("x = 20")
    assert sandbox.run_code("x * 2 + 2").text == "42"
    pieces: list[str] = []
    run = sandbox.run_code(
        "import sys, time\nfor n in range(3):\n    print(n, flush=True); time.sleep(0.05)\n"
        "print('bad', file=sys.stderr)",
        on_stdout=lambda message: pieces.append(message.line),
    )
    assert "".join(pieces) == "".join(run.logs.stdout) == "0\n1\n2\n"
    assert run.logs.stderr == ["bad\n"]
    failed = sandbox.run_code("1 / 0").error
    assert failed is not None
    assert (failed.name, failed.value) == ("ZeroDivisionError", "division by zero")
    assert "1 / 0" in failed.traceback or "ZeroDivisionError" in failed.traceback
    shown = sandbox.run_code(
        "from IPython.display import HTML, display\ndisplay(HTML('<b>x</b>'))\n7"
    )
    assert shown.results[0].html == "<b>x</b>"
    assert [each.is_main_result for each in shown.results] == [False, True]
    told = sandbox.run_code("import os; os.environ['COLOUR']", envs={"COLOUR": "red"})
    assert told.text == "red"
    assert sandbox.run_code("os.environ.get('COLOUR')").text is None
    sandbox.run_code("open('kept', 'w').write('it is')")
    assert sandbox.files.read("/home/user/kept") == "it is"


PICTURE = """
from PIL import Image
image = Image.new("RGB", (4, 4), "red")
image.{}
print("done")
"""


def pictures(sandbox: Sandbox) -> None:
    for call in ("show()", "save('red.png')"):
        run = sandbox.run_code(PICTURE.format(call))
        assert [each.png is not None for each in run.results] == [True], run
        assert "".join(run.logs.stdout) == "done\n"
    assert sandbox.files.exists("red.png")


def charts(sandbox: Sandbox) -> None:
    [result] = sandbox.run_code(CHART).results
    assert result.png is not None
    assert base64.b64decode(result.png).startswith(b"\x89PNG")
    assert result.chart is not None
    assert result.chart.title == "Two bars"
    [result] = sandbox.run_code(BOXES).results
    assert isinstance(result.chart, BoxAndWhiskerChart)
    assert [each.median for each in result.chart.elements] == [3, 6]


def contexts(sandbox: Sandbox) -> None:
    made = sandbox.create_code_context(cwd="/home/user/not/there/yet")
    assert sandbox.run_code("import os; os.getcwd()", context=made).text == made.cwd
    made = sandbox.create_code_context(cwd="/tmp")  # noqa: S108 - inside
    assert sandbox.run_code("import os; os.getcwd()", context=made).text == made.cwd
    assert sandbox.run_code("'x' in globals()", context=made).text == "False"
    assert made.id in [each.id for each in sandbox.list_code_contexts()]
    sandbox.run_code("y = 1", context=made)
    sandbox.restart_code_context(made)
    assert sandbox.run_code("'y' in globals()", context=made).text == "False"
    sandbox.remove_code_context(made)
    assert made.id not in [each.id for each in sandbox.list_code_contexts()]


def languages(sandbox: Sandbox) -> None:
    """Those whose kernels are there, and a refusal that names them for others."""
    sandbox.run_code("A=5", language="bash")
    shown = sandbox.run_code("echo $A $COLOUR", language="bash", envs={"COLOUR": "red"})
    assert "".join(shown.logs.stdout) == "5 red\n"
    assert "".join(sandbox.run_code("echo $COLOUR", language="bash").logs.stdout) == "\n"
    assert sandbox.run_code("ls nothing", language="bash").error is not None
    told = ""
    try:
        sandbox.run_code("1", language="r")
    except SandboxException as error:
        told = str(error)
    assert "no kernel for 'r'" in told


async def main_async() -> None:
    sandbox = await AsyncSandbox.create(timeout=180)
    try:
        assert (await sandbox.run_code("6 * 7")).text == "42"
        made = await sandbox.create_code_context()
        both = await asyncio.gather(
            sandbox.run_code("import time; time.sleep(0.2); 'one'"),
            sandbox.run_code("'two'", context=made),
        )
        assert [each.text for each in both] == ["one", "two"]
    finally:
        await sandbox.kill()


if __name__ == "__main__":
    main()
    asyncio.run(main_async())
    # The SDK's HTTP library now and then aborts while Python ends; by then all is well.
    os._exit(0)
