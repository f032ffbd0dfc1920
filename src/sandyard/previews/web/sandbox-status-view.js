/** What `<sandbox-status>` shows and speaks. */

const WARN_AT_MINUTES = [1, 5];
const SHOWN_LINES = 12;

export const LABELS = {
  running: "Running",
  expired: "Ended",
  not_found: "Not started",
  unknown: "Unknown",
};

/** @type {Record<string, string>} */
export const PHASES = {
  installing: "Installing packages…",
  starting: "Starting…",
  running: "Running",
  failed: "Does not run",
};

const STYLE = `
:host { --_calm: #5b6472; --_good: #13794a; --_over: #a04b00; --_line: #5b647240;
  color-scheme: light dark; display: inline-block; font: 0.9375rem/1.4 system-ui, sans-serif; }
:host([hidden]) { display: none; }
@media (prefers-color-scheme: dark) {
  :host { --_calm: #a3adbb; --_good: #4fd08f; --_over: #ffb066; --_line: #a3adbb40; } }
:host { --_tone: var(--sandbox-status-color, var(--_calm)); }
:host(:state(running)) { --_tone: var(--sandbox-status-running, var(--_good)); }
:host(:state(expired)), :host(:state(not_found)) {
  --_tone: var(--sandbox-status-ended, var(--_over)); }
:host(:state(stale)) { --_tone: var(--sandbox-status-color, var(--_calm)); }
[part=root] { display: flex; flex-wrap: wrap; align-items: center; gap: 0.25rem 0.625rem; }
[part=dot] { inline-size: 0.625rem; block-size: 0.625rem; border-radius: 50%;
  background: var(--_tone); flex: none; }
:host(:state(stale)) [part=dot] { background: none; box-shadow: inset 0 0 0 2px var(--_tone); }
[part=state] { color: var(--_tone); font-weight: 600; }
[part=stale] { border: 1px solid var(--_line); border-radius: 1rem; padding: 0 0.5rem;
  font-size: 0.8125rem; }
[part=countdown] { font-variant-numeric: tabular-nums; }
[part=message] { flex-basis: 100%; color: var(--_calm); font-size: 0.8125rem;
  overflow-wrap: anywhere; }
[part=lines] { flex-basis: 100%; margin: 0; max-block-size: 12em; overflow: auto;
  font-size: 0.75rem; color: var(--_calm); }
[part=button] { font: inherit; font-weight: 600; color: inherit; background: none;
  border: 1px solid var(--_tone); border-radius: 0.375rem; padding: 0 0.75rem;
  cursor: pointer; }
[part=button]:hover { background: var(--_line); }
[part=button][aria-disabled=true] { opacity: 0.6; cursor: default; }
[part=link] { color: inherit; }
:focus-visible { outline: 2px solid var(--_tone); outline-offset: 2px; }
[hidden] { display: none; }
.spoken { position: absolute; inline-size: 1px; block-size: 1px; overflow: hidden;
  clip-path: inset(50%); white-space: nowrap; }
@media (prefers-reduced-motion: no-preference) {
  :host(:state(busy)) [part=dot] { animation: breathe 1.2s ease-in-out infinite; }
  @keyframes breathe { 50% { opacity: 0.35; } } }
`;

/** What is seen and spoken; server data goes in as text only. */
export class View {
  /** @param {ShadowRoot} root @param {() => void} onSync */
  constructor(root, onSync) {
    const sheet = new CSSStyleSheet(); // unlike a <style>, allowed by any Content-Security-Policy
    sheet.replaceSync(STYLE);
    root.adoptedStyleSheets = [sheet];
    this.state = part("span", "state");
    this.stale = part("span", "stale", "last known");
    this.countdown = part("time", "countdown");
    this.countdown.setAttribute("role", "timer");
    this.message = part("span", "message");
    this.link = part("a", "link", slot("open", "Open preview"));
    this.link.target = "_blank";
    this.link.rel = "noopener noreferrer";
    this.button = part("button", "button", slot("sync", "Sync now"));
    this.button.type = "button";
    this.button.addEventListener("click", () => onSync());
    this.spoken = Object.assign(document.createElement("span"), { className: "spoken" });
    this.spoken.setAttribute("role", "status");
    this.lines = part("pre", "lines");
    const dot = part("span", "dot");
    dot.setAttribute("aria-hidden", "true");
    const seen = [dot, slot("", ""), this.state, this.stale, this.countdown];
    const more = [this.link, this.button, this.message, this.lines, this.spoken];
    root.append(part("div", "root", ...seen, ...more));
  }

  /**
   * @param {{label: string, isStale: boolean, remainingMs: number | null, endsAt: string,
   *   message: string, lines: string[], link: string | null, offersSync: boolean, isBusy: boolean}} now
   */
  show(now) {
    write(this.state, now.label);
    this.stale.hidden = !now.isStale;
    this.countdown.hidden = now.remainingMs === null;
    write(this.countdown, `${clockTime(now.remainingMs ?? 0)} left`);
    this.countdown.dateTime = now.endsAt;
    write(this.message, now.message);
    this.message.hidden = !now.message;
    write(this.lines, now.lines.slice(-SHOWN_LINES).join("\n"));
    this.lines.hidden = !now.lines.length;
    this.link.hidden = now.link === null;
    if (now.link !== null && this.link.href !== now.link) this.link.href = now.link;
    this.button.setAttribute("aria-disabled", String(now.isBusy));
    this.#offer(now.offersSync);
    const minutes = WARN_AT_MINUTES.find((m) => (now.remainingMs ?? Infinity) <= m * 60_000);
    const warning = minutes ? `${minutes} ${minutes === 1 ? "minute" : "minutes"} left or less` : "";
    const spoken = [now.label, now.isStale ? "last known" : "", warning, now.message];
    write(this.spoken, spoken.filter(Boolean).join(", "));
  }

  /** Show the button or not; who has pressed it by key goes on at the link. @param {boolean} is */
  #offer(is) {
    const hadFocus = !is && this.button.matches(":focus");
    this.button.hidden = !is;
    if (hadFocus && !this.link.hidden) this.link.focus();
  }
}

/** @param {number} ms */
function clockTime(ms) {
  const seconds = Math.ceil(ms / 1000);
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  return h ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

/** Only what changed, so that nothing is spoken twice. @param {Node} node @param {string} text */
function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {string} name
 * @param {...(Node | string)} children
 */
function part(tag, name, ...children) {
  const element = document.createElement(tag);
  element.setAttribute("part", name);
  element.append(...children);
  return element;
}

/** @param {string} name @param {string} usual */
function slot(name, usual) {
  const element = document.createElement("slot");
  element.name = name;
  element.append(usual);
  return element;
}
