// The preview of a project: `<sandbox-status>` says how it is; a new one is shown as soon as it runs.
"use strict";

document.addEventListener("htmx:load", async () => {
  await customElements.whenDefined("sandbox-status");
  const element = document.querySelector("sandbox-status");
  if (element) element.previewLink = element.dataset.link;
});

document.addEventListener("sandbox-synced", () => {
  htmx.ajax("GET", location.pathname + location.search, { target: "#main", swap: "innerHTML" });
});
