/** The demo page: a project's name, its state and its preview, for whoever has a token. */

import { SandboxStatus } from "./sandbox-status.js";

/** @typedef {import("./sandbox-status.js").SandboxInfo} SandboxInfo */

const KEPT = { project: "sandyard-demo-project", token: "sandyard-demo-token" };
const TRUST = "allow-scripts allow-forms allow-popups";
const EMPTY = {
  running: "The preview runs, but has no address that can be shown here.",
  expired: "The preview has ended. Move the mouse, press a key or sync now to bring it back.",
  not_found: "There is no preview yet. Move the mouse, press a key or sync now to make one.",
  unknown: "It is not known yet whether the preview runs.",
};

/**
 * @template {Element} T
 * @param {string} id
 * @param {new () => T} kind
 */
function find(id, kind) {
  const element = document.getElementById(id);
  if (!(element instanceof kind)) throw new TypeError(`#${id} is missing`);
  return element;
}

const status = find("status", SandboxStatus);
const frame = find("preview", HTMLIFrameElement);
const form = find("who", HTMLFormElement);
const name = find("name", HTMLElement);
const empty = find("empty", HTMLElement);
const sync = find("sync", HTMLButtonElement);
const project = /** @type {HTMLInputElement} */ (form.elements.namedItem("project"));
const token = /** @type {HTMLInputElement} */ (form.elements.namedItem("token"));

/** What opens the preview; null if its address does. @type {string | null} */
let link = null;

/** @param {unknown} text */
function webAddress(text) {
  const url = typeof text === "string" ? URL.parse(text) : null;
  return url && ["http:", "https:"].includes(url.protocol) ? url : null;
}

/** Show the running preview, again if `isChanged`; or say why there is none. */
function showPreview({ isChanged = false } = {}) {
  const isRunning = status.status === "running";
  const url = isRunning ? webAddress(link ?? status.sandboxInfo?.preview_url) : null;
  sync.hidden = !isRunning;
  frame.hidden = url === null;
  empty.hidden = url !== null;
  empty.textContent = EMPTY[status.status];
  if (frame.getAttribute("src") === (url?.href ?? null) && !isChanged) return;
  // On our own origin a preview could take the frame's walls down, so there it gets no origin.
  const isForeign = url !== null && url.origin !== location.origin;
  frame.setAttribute("sandbox", isForeign ? `${TRUST} allow-same-origin` : TRUST);
  if (url) frame.setAttribute("src", url.href);
  else frame.removeAttribute("src");
}

/** @param {string} id @param {string} bearer */
async function showName(id, bearer) {
  name.textContent = id;
  const response = await fetch(`/api/v1/projects/${encodeURIComponent(id)}`, {
    headers: bearer ? { Authorization: `Bearer ${bearer}` } : {},
  }).catch(() => null);
  const answer = response?.ok ? await response.json().catch(() => null) : null;
  if (typeof answer?.name === "string" && project.value.trim() === id) name.textContent = answer.name;
}

/** A token for this project alone, instead of the account's credential; null if there is none.
 * @param {string} id @param {string} bearer */
async function exchange(id, bearer) {
  const response = await fetch(`/api/v1/projects/${encodeURIComponent(id)}/tokens`, {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${bearer}` },
    body: JSON.stringify({ scopes: ["view", "status", "sync"] }),
  }).catch(() => null);
  return response?.ok ? await response.json().catch(() => null) : null;
}

async function show() {
  const [id, bearer] = [project.value.trim(), token.value.trim()];
  if (!id) return;
  sessionStorage.setItem(KEPT.project, id);
  sessionStorage.setItem(KEPT.token, bearer);
  const issued = bearer ? await exchange(id, bearer) : null;
  link = issued?.url ?? null;
  status.previewLink = link;
  status.token = issued?.token ?? bearer;
  status.setAttribute("project-id", id);
  showPreview();
  showName(id, bearer);
}

function forget() {
  Object.values(KEPT).forEach((key) => sessionStorage.removeItem(key));
  form.reset();
  location.reload();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  show();
});
find("forget", HTMLButtonElement).addEventListener("click", forget);
sync.addEventListener("click", () => status.sync());
status.addEventListener("sandbox-unauthorized", () => show());
status.addEventListener("sandbox-token-expiring", () => show());
status.addEventListener("sandbox-status", () => showPreview());
status.addEventListener("sandbox-synced", () => showPreview({ isChanged: true }));

project.value = sessionStorage.getItem(KEPT.project) ?? "";
token.value = sessionStorage.getItem(KEPT.token) ?? "";
show();
