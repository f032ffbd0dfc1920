// The file browser of a sandbox: upload, edit and remove, by calls of the API.
"use strict";

document.addEventListener("htmx:load", () => {
  const browser = document.querySelector("[data-files]");
  if (!browser || browser.dataset.ready) return;
  browser.dataset.ready = "yes";
  const status = browser.querySelector("[data-files-status]");
  const editor = browser.querySelector("[data-editor]");
  const at = (path) => `${browser.dataset.files}?path=${encodeURIComponent(path)}`;
  const below = (name) => `${browser.dataset.folder.replace(/\/$/, "")}/${name}`;

  async function call(method, path, body) {
    const answer = await fetch(at(path), { method, body });
    if (answer.ok) return answer;
    const { error } = await answer.json();
    status.textContent = `${error.message} (${error.code} · ${error.request_id})`;
    throw new Error(error.code);
  }

  function edit(path, text) {
    editor.hidden = false;
    editor.path.value = path;
    editor.text.value = editor.text.defaultValue = text;
    editor.text.focus();
  }

  function unlessUnsaved(then) {
    if (!isUnsaved(editor)) return then();
    ask(`Leave ${editor.path.value}? Your unsaved changes are lost.`, then);
  }

  function open(path, bytes) {
    try {
      edit(path, new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
      status.textContent = "";
    } catch {
      editor.hidden = true;
      status.textContent = `${path} is no text. Download it instead.`;
    }
  }

  browser.addEventListener("click", (event) => {
    const { edit: edited, remove } = event.target.dataset;
    if (edited) unlessUnsaved(async () => open(edited, await (await call("GET", edited)).arrayBuffer()));
    if (event.target.matches("[data-new-file]")) unlessUnsaved(() => edit(below("new.txt"), ""));
    if (remove) ask(`Remove ${remove}?`, () => call("DELETE", remove).then(() => location.reload()));
  });
  browser.querySelector("[data-upload]").addEventListener("change", async (event) => {
    for (const file of event.target.files) {
      status.textContent = `Sending ${file.name} …`;
      await call("PUT", below(file.name), file);
    }
    location.reload();
  });
  editor.addEventListener("submit", async (event) => {
    event.preventDefault();
    await call("PUT", editor.path.value, editor.text.value);
    editor.text.defaultValue = editor.text.value;
    status.textContent = `Saved ${editor.path.value}.`;
  });
});
