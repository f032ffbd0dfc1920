"""Each framework that is known is installed and started by its files alone, and shows an edit."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.previews.test_applications import phase, push
from tests.support.servers.processes import ServerProcess, sandyard_serve
from tests.support.servers.sandbox_programs import page_of
from tests.support.servers.users import Person, signed_up, until
from tests.support.services.package_indexes import (
    NETWORK,
    PackageIndex,
    downloaded_wheels,
    installed_packages,
    package_index,
)

pytestmark = [pytest.mark.torture, pytest.mark.timeout(900)]
VITE = {"scripts": {"dev": "vite"}, "type": "module"}
INDEX = '<div id="app"></div><script type="module" src="/src/main.{}"></script>'


def vite(plugin: str, end: str, **files: str) -> dict[str, str]:
    """A project of Vite with this plugin and its framework."""
    name = plugin.rpartition("-")[2]
    config = (
        f'import plugin from "{plugin}";\n'
        "export default { plugins: [(plugin.svelte ?? plugin)()] };\n"
    )
    if name == "svelte":
        config = config.replace("import plugin", "import * as plugin").replace("?? plugin", "")
    needed = {"vite": "^6", plugin: "*", name: "*"} | (
        {"react-dom": "*"} if name == "react" else {}
    )
    package = json.dumps(VITE | {"devDependencies": needed})
    shown = {"index.html": INDEX.format(end), "package.json": package, "vite.config.js": config}
    return shown | {path.replace("__", "."): text for path, text in files.items()}


REACT = vite(
    "@vitejs/plugin-react",
    "jsx",
    **{
        "src/main__jsx": 'import { createRoot } from "react-dom/client";\n'
        'import App from "./App.jsx";\n'
        'createRoot(document.getElementById("app")).render(<App />);\n',
        "src/App__jsx": "export default () => <b>one</b>;\n",
    },
)
VUE = vite(
    "@vitejs/plugin-vue",
    "js",
    **{
        "src/main__js": 'import { createApp } from "vue";\nimport App from "./App.vue";\n'
        'createApp(App).mount("#app");\n',
        "src/App__vue": "<template><b>one</b></template>\n",
    },
)
SVELTE = vite(
    "@sveltejs/vite-plugin-svelte",
    "js",
    **{
        "src/main__js": 'import { mount } from "svelte";\nimport App from "./App.svelte";\n'
        'mount(App, { target: document.getElementById("app") });\n',
        "src/App__svelte": "<b>one</b>\n",
    },
)
EXPRESS = {
    "package.json": json.dumps(
        {"scripts": {"dev": "node --watch app.js"}, "dependencies": {"express": "*"}}
    ),
    "app.js": 'require("express")().get("/", (_, answer) => answer.send("one"))\n'
    '  .listen(process.env.PORT, "127.0.0.1");\n',
}
FASTAPI = {
    "requirements.txt": "fastapi\n",
    "main.py": "import fastapi\n\napp = fastapi.FastAPI()\n\n\n"
    '@app.get("/")\ndef show() -> str:\n    return "one"\n',
}
STREAMLIT = {
    "pyproject.toml": '[project]\nname = "app"\nversion = "1"\ndependencies = ["streamlit"]\n',
    "streamlit_app.py": 'import streamlit\n\nstreamlit.title("one")\n',
}
PROJECTS: dict[str, tuple[str, dict[str, str], str, str]] = {
    "react": ("vite", REACT, "src/App.jsx", "/src/App.jsx"),
    "vue": ("vite", VUE, "src/App.vue", "/src/App.vue"),
    "svelte": ("vite", SVELTE, "src/App.svelte", "/src/App.svelte"),
    "express": ("express", EXPRESS, "app.js", "/"),
    "fastapi": ("fastapi", FASTAPI, "main.py", "/"),
    "streamlit": ("streamlit", STREAMLIT, "streamlit_app.py", "/_stcore/health"),
}
"""What it is found to be, its files, the one that is edited, and the path that shows it."""


@pytest.fixture(scope="module")
def index() -> Iterator[PackageIndex]:
    packages = installed_packages(
        *("vite@6", "@vitejs/plugin-react@4", "react", "react-dom", "@vitejs/plugin-vue@5", "vue"),
        *("@sveltejs/vite-plugin-svelte@5", "svelte", "express"),
    )
    wheels = downloaded_wheels("fastapi", "uvicorn", "streamlit")
    with package_index(wheels=wheels, packages=packages) as index:
        yield index


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, index: PackageIndex
) -> Iterator[ServerProcess]:
    environment = {
        "PARTS": "platform,previews",
        "SANDBOX_EGRESS_NETWORKS": NETWORK,
        "SANDBOX_NPM_REGISTRY": index.npm_registry,
        "SANDBOX_PIP_INDEX_URL": index.pip_index_url,
        "PREVIEW_STORAGE_GB": "1",
    }
    with sandyard_serve(tmp_path_factory.mktemp("apps") / "data", environment=environment) as made:
        yield made


@pytest.fixture(scope="module")
def ann(server: ServerProcess) -> Person:
    return signed_up(server, "ann", mail=1)


def shown(ann: Person, url: str, path: str) -> str:
    try:
        return page_of(ann, url, path).text
    except httpx.TransportError:  # while the server restarts
        return ""


@pytest.mark.parametrize("name", PROJECTS)
def test_a_framework_is_installed_started_and_edited(ann: Person, name: str) -> None:
    kind, files, edited, path = PROJECTS[name]
    project = f"/projects/{ann.call('POST', '/projects', {'name': name}, expect=201)['project_id']}"
    assert push(ann, project, files) == "created"

    def ended() -> Any:
        return phase(ann, project, "running")() or phase(ann, project, "failed")()

    found = until(ended, within_sec=300)
    assert (found["phase"], found["kind"]) == ("running", kind), found["last_lines"]
    url = ann.call("GET", f"{project}/sandbox/status")["sandbox_info"]["preview_url"]
    before = "ok" if name == "streamlit" else "one"
    until(lambda: before in shown(ann, url, path))
    assert push(ann, project, {edited: files[edited].replace("one", "two")}) == "updated"
    after = "ok" if name == "streamlit" else "two"
    until(lambda: after in shown(ann, url, path))
    ann.call("DELETE", f"{project}/sandbox")
