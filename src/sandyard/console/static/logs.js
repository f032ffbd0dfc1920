// <pre data-log="URL">: shows what the URL answers: JSON with lines, or text that goes on. With data-starting
// it is asked for again until there is some.
"use strict";

const AGAIN_MS = 1000;

async function follow(element) {
  const answer = await fetch(element.dataset.log);
  if ((answer.headers.get("content-type") || "").includes("json")) {
    const { lines, error } = await answer.json();
    element.textContent = error ? error.message : lines.join("\n");
    return;
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    const isAtEnd = element.scrollTop + element.clientHeight >= element.scrollHeight - 4;
    element.textContent = (element.textContent + piece.value).slice(-200_000);
    if (isAtEnd) element.scrollTop = element.scrollHeight;
  }
  const isToCome = "starting" in element.dataset && !element.textContent;
  if (isToCome && document.contains(element)) setTimeout(() => follow(element), AGAIN_MS);
}

document.addEventListener("htmx:load", (event) => {
  for (const each of event.target.querySelectorAll("[data-log]")) follow(each);
});
