// A terminal over the API's WebSocket; after a lost connection it goes on where it was.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const element = document.querySelector("[data-terminal]");
  const status = document.querySelector("[data-terminal-status]");
  const terminal = new Terminal({ cursorBlink: true, fontSize: 14, lineHeight: 1.2 });
  const fit = new FitAddon.FitAddon();
  const base = new URL(element.dataset.terminal, location.href);
  base.protocol = base.protocol.replace("http", "ws");
  let socket, command, offset = 0, hasEnded = false;

  terminal.loadAddon(fit);
  terminal.open(element);
  fit.fit();

  function tell(kind, message) {
    if (kind === "attached") { command = message.command_id; status.textContent = "Connected."; }
    if (kind === "skipped") { offset += message.bytes; terminal.write("\r\n[some output is not kept any more]\r\n"); }
    if (kind === "exit") { hasEnded = true; status.textContent = `The shell has ended (${message.exit_code}).`; }
    if (kind === "error") { hasEnded = true; status.textContent = `${message.message || ""} (${message.code})`; }
  }

  function connect() {
    const url = new URL(base);
    const asked = command ? { command_id: command, offset } : { columns: terminal.cols, rows: terminal.rows, reuse: true };
    for (const [name, value] of Object.entries(asked)) url.searchParams.set(name, value);
    socket = new WebSocket(url);
    socket.binaryType = "arraybuffer";
    socket.onmessage = ({ data }) => {
      if (typeof data === "string") { const message = JSON.parse(data); return tell(message.type, message); }
      offset += data.byteLength;
      terminal.write(new Uint8Array(data));
    };
    socket.onclose = () => {
      if (hasEnded) return;
      status.textContent = "The connection was lost; connecting again …";
      setTimeout(connect, 1000);
    };
  }

  const encoder = new TextEncoder();
  terminal.onData((keys) => socket.readyState === WebSocket.OPEN && socket.send(encoder.encode(keys)));
  terminal.onResize(({ cols, rows }) => {
    if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ type: "resize", columns: cols, rows }));
  });
  window.addEventListener("resize", () => fit.fit());
  connect();
  terminal.focus();
});
