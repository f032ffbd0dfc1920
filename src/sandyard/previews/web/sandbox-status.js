/**
 * `<sandbox-status project-id="prj-…">`: shows whether a project's preview runs and for how long.
 *
 * It asks the server and is never sure by itself: trouble keeps the last known state, marked as
 * such, and only an answer that the preview has ended leads to a new one, once the person is there.
 *
 * Attributes: `project-id`, `base-url` (else this origin), `interval` and `active-within` (seconds).
 * Property: `token`, sent as a bearer token and kept out of the DOM; without one, cookies are sent.
 * Events: `sandbox-status` and `sandbox-synced`, each with the server's answer as `detail`.
 * Slots: the default one (a name for it), `open` and `sync` (the texts of link and button).
 * Parts: root, dot, state, stale, countdown, message, link, button.
 * States: `:state(running)`, expired, not_found, unknown, and stale, busy.
 * Not seen as activity: what the person does inside an iframe, since the browser hides it from us.
 *
 * @typedef {"running" | "expired" | "not_found" | "unknown"} Status
 *
 * @typedef {object} SandboxInfo
 * @property {string} sandbox_id
 * @property {string} preview_url
 * @property {string} start_time ISO 8601
 * @property {string} end_time ISO 8601
 * @property {number} [remaining_time_minutes]
 * @property {string} [last_checked] ISO 8601
 *
 * @typedef {object} StatusAnswer
 * @property {boolean} success
 * @property {Status} status
 * @property {boolean} stale The provider could not be asked: this is what was last known.
 * @property {SandboxInfo | null} sandbox_info
 * @property {"none" | "sync_needed" | "retry_later"} action_required
 * @property {string} message
 *
 * @typedef {object} SyncAnswer
 * @property {boolean} success
 * @property {{projectId: string, sandbox_info: SandboxInfo, filesCount: number, version: number}} data
 * @property {string} message
 */

const INTERVAL_SEC = 60;
const ACTIVE_WITHIN_SEC = 60;
const FIRST_RETRY_MS = 5_000;
const LAST_RETRY_MS = 300_000;
const LONGEST_TIMER_MS = 2 ** 31 - 1;
const TOLERATED_SKEW_MS = 2_000;
const PATIENCE_MS = { check: 30_000, sync: 120_000 };
const ACTIVITY = ["pointermove", "pointerdown", "keydown", "touchstart", "wheel"];
const UNREACHABLE = "The server cannot be reached. It is asked again.";
const UNREADABLE = "The server's answer cannot be read.";
const WARN_AT_MINUTES = [1, 5];
const LABELS = {
  running: "Running",
  expired: "Ended",
  not_found: "Not started",
  unknown: "Unknown",
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

/** What kept an answer from coming. */
class Trouble extends Error {
  /**
   * @param {string} message
   * @param {{isFinal?: boolean, retryAfterMs?: number | null}} [more]
   */
  constructor(message, { isFinal = false, retryAfterMs = null } = {}) {
    super(message);
    /** Asking again would bring the same answer. */
    this.isFinal = isFinal;
    this.retryAfterMs = retryAfterMs;
  }

  /**
   * From an answer in the server's one error shape, or in none at all (a proxy's page).
   * @param {Response} response
   */
  static async of(response) {
    const error = (await response.json().catch(() => null))?.error ?? {};
    const seconds = Number(error.retry_after ?? response.headers.get("retry-after") ?? NaN);
    const retryAfterMs = seconds >= 0 ? seconds * 1000 : null;
    const mayPass = response.status >= 500 || [408, 425, 429].includes(response.status);
    return new Trouble(
      typeof error.message === "string" ? error.message : `The server answered ${response.status}.`,
      { isFinal: !mayPass && retryAfterMs === null, retryAfterMs },
    );
  }
}

export class SandboxStatus extends HTMLElement {
  static observedAttributes = ["project-id", "base-url", "interval"];

  #internals = this.attachInternals();
  #view = new View(this.attachShadow({ mode: "open" }), () => this.sync());
  #token = "";
  /** @type {StatusAnswer | null} The last answer that was not `unknown`. */
  #known = null;
  /** The last check did not bring a known state. */
  #isStale = false;
  #notice = "";
  /** @type {{kind: "check" | "sync", controller: AbortController} | null} */
  #request = null;
  /** @type {AbortController | null} */
  #listeners = null;
  #checkTimer = 0;
  #tickTimer = 0;
  #failures = 0;
  /** The server asked to be left alone until then. */
  #notBefore = 0;
  /** The server will not sync; only the person may ask again. */
  #isRefused = false;
  #activeAt = -Infinity;
  #pointer = "";
  /** How far the server's clock is ahead of this one. */
  #skewMs = 0;

  /** Write-only, so that no other script reads it here. */
  set token(/** @type {string | null | undefined} */ value) {
    const token = (value ?? "").trim();
    if (token === this.#token) return;
    this.#token = token;
    this.#restart();
  }

  /** The last known state; `unknown` before there is one. @returns {Status} */
  get status() {
    return this.#known?.status ?? "unknown";
  }

  /** The state is what was last known, not what the provider says now. */
  get stale() {
    return this.#isStale;
  }

  /** @returns {SandboxInfo | null} */
  get sandboxInfo() {
    return this.#known?.sandbox_info ?? null;
  }

  connectedCallback() {
    this.#adoptEarlyToken();
    this.#listeners = new AbortController();
    const { signal } = this.#listeners;
    for (const name of ACTIVITY) {
      const heard = (/** @type {Event} */ event) => this.#noticeActivity(event);
      window.addEventListener(name, heard, { signal, passive: true, capture: true });
    }
    document.addEventListener("visibilitychange", () => this.#visibilityChanged(), { signal });
    window.addEventListener("online", () => this.check(), { signal });
    this.#render();
    this.check();
  }

  disconnectedCallback() {
    this.#listeners?.abort();
    this.#halt();
  }

  /**
   * @param {string} name
   * @param {string | null} before
   * @param {string | null} after
   */
  attributeChangedCallback(name, before, after) {
    if (before === after) return;
    if (name !== "interval") this.#restart();
    else if (this.#checkTimer && !this.#failures) this.#checkLater(this.#untilNextCheck());
  }

  /** Ask for the state now, unless the tab is hidden, a request is under way or none is wanted yet. */
  async check() {
    if (!this.#mayCall() || this.#request) return;
    const early = this.#notBefore - Date.now();
    if (early > 0) return this.#checkLater(early);
    await this.#call("check", "GET", "sandbox/status", (answer) => this.#take(answer));
  }

  /** Bring the files into the running preview, or into a new one; not from a hidden tab. */
  async sync() {
    if (!this.#mayCall() || this.#request?.kind === "sync") return;
    if (this.#notBefore > Date.now()) return;
    await this.#call("sync", "POST", "sync", (answer) => this.#takeSynced(answer));
  }

  #mayCall() {
    return this.isConnected && isVisible() && Boolean(this.getAttribute("project-id"));
  }

  /**
   * One request at a time: a sync takes the place of a check that is under way.
   * @param {"check" | "sync"} kind
   * @param {string} method
   * @param {string} path
   * @param {(answer: any) => void} take
   */
  async #call(kind, method, path, take) {
    this.#halt();
    const controller = new AbortController();
    const request = { kind, controller };
    this.#request = request;
    this.#render();
    const patience = setTimeout(() => controller.abort(), PATIENCE_MS[kind]);
    /** @type {Trouble | null} */
    let trouble = null;
    let answer = null;
    try {
      answer = await this.#fetch(method, path, controller.signal);
    } catch (error) {
      trouble = error instanceof Trouble ? error : new Trouble(UNREACHABLE);
    }
    clearTimeout(patience);
    if (this.#request !== request) return; // taken back while it was under way
    this.#request = null;
    if (trouble) this.#meet(trouble, kind);
    else take(answer);
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {AbortSignal} signal
   */
  async #fetch(method, path, signal) {
    const base = new URL(this.getAttribute("base-url") || "/", document.baseURI).href;
    const project = encodeURIComponent(this.getAttribute("project-id") ?? "");
    const url = `${base.replace(/\/+$/, "")}/api/v1/projects/${project}/${path}`;
    const response = await fetch(url, {
      method,
      signal,
      headers: this.#token ? { Authorization: `Bearer ${this.#token}` } : {},
      credentials: this.#token ? "omit" : "include",
      cache: "no-store",
      redirect: "error",
    });
    if (!response.ok) throw await Trouble.of(response);
    const skew = Date.parse(response.headers.get("date") ?? "") - Date.now();
    this.#skewMs = Math.abs(skew) > TOLERATED_SKEW_MS ? skew : 0;
    return response.json();
  }

  /** @param {StatusAnswer} answer */
  #take(answer) {
    if (!Object.hasOwn(LABELS, answer?.status)) {
      return this.#meet(new Trouble(UNREADABLE), "check");
    }
    if (answer.status === "unknown") {
      this.#meet(new Trouble(answer.message), "check");
    } else {
      this.#know(answer, Boolean(answer.stale));
      if (answer.status === "running") this.#checkLater(this.#untilNextCheck());
    }
    this.#tell("sandbox-status", answer);
    this.#syncIfActive();
  }

  /** @param {SyncAnswer} answer */
  #takeSynced(answer) {
    const info = answer?.data?.sandbox_info;
    if (!info) return this.#meet(new Trouble(UNREADABLE), "sync");
    const { success, message } = answer;
    const running = { status: /** @type {const} */ ("running"), sandbox_info: info };
    const more = { stale: false, action_required: /** @type {const} */ ("none") };
    this.#know({ success, ...running, ...more, message }, false);
    this.#checkLater(this.#untilNextCheck());
    this.#tell("sandbox-synced", answer);
  }

  /**
   * @param {StatusAnswer} answer
   * @param {boolean} isStale
   */
  #know(answer, isStale) {
    this.#known = answer;
    this.#isStale = isStale;
    this.#notice = String(answer.message ?? "");
    this.#notBefore = 0;
    if (answer.status === "running") {
      this.#failures = 0;
      this.#isRefused = false;
    }
    this.#render();
  }

  /**
   * Keep what is known and ask again later; a sync that failed leads to a check first.
   * @param {Trouble} trouble
   * @param {"check" | "sync"} kind
   */
  #meet(trouble, kind) {
    const backoff = Math.min(FIRST_RETRY_MS * 2 ** this.#failures, LAST_RETRY_MS);
    this.#failures += 1;
    this.#notice = trouble.message;
    if (kind === "check") this.#isStale = true;
    if (kind === "sync") this.#isRefused = trouble.isFinal;
    if (trouble.retryAfterMs !== null) this.#notBefore = Date.now() + trouble.retryAfterMs;
    if (!trouble.isFinal) {
      this.#checkLater(trouble.retryAfterMs ?? backoff * (1 - Math.random() / 5));
    }
    this.#render();
  }

  /** The next poll, or the moment of its end if that comes first. */
  #untilNextCheck() {
    const interval = this.#seconds("interval", INTERVAL_SEC) * 1000;
    const remaining = this.#remainingMs() ?? interval;
    return remaining > 0 ? Math.min(interval, remaining + 500) : interval;
  }

  /** @param {number} ms */
  #checkLater(ms) {
    clearTimeout(this.#checkTimer);
    this.#checkTimer = 0;
    if (!this.#mayCall()) return; // becoming visible checks anyway
    this.#checkTimer = setTimeout(() => {
      this.#checkTimer = 0;
      this.check();
    }, Math.min(ms, LONGEST_TIMER_MS));
  }

  /** A sync without being asked: needed for sure, nothing to wait for, and somebody is there. */
  #syncIfActive() {
    const isWaiting = this.#request || this.#checkTimer || this.#isRefused;
    const activeWithinMs = this.#seconds("active-within", ACTIVE_WITHIN_SEC) * 1000;
    const isActive = Date.now() - this.#activeAt <= activeWithinMs;
    if (this.#needsSync() && isActive && !isWaiting) this.sync();
  }

  #needsSync() {
    return this.#known?.action_required === "sync_needed" && !this.#isStale;
  }

  /** @param {Event} event */
  #noticeActivity(event) {
    if (!event.isTrusted) return;
    if (event instanceof PointerEvent && event.type === "pointermove") {
      const place = `${event.screenX},${event.screenY}`;
      if (place === this.#pointer) return; // the page moved, not the person
      this.#pointer = place;
    }
    this.#activeAt = Date.now();
    this.#syncIfActive();
  }

  #visibilityChanged() {
    if (isVisible()) this.check();
    else this.#checkLater(0); // takes the timer away
    this.#render();
  }

  /** Another project, server or person: forget everything and ask. */
  #restart() {
    this.#halt();
    this.#known = null;
    this.#isStale = this.#isRefused = false;
    this.#notice = "";
    this.#failures = this.#notBefore = 0;
    if (!this.isConnected) return;
    this.#render();
    queueMicrotask(() => this.check()); // once for all that changes now
  }

  /** A token that was set before this class was known lies on the element itself. */
  #adoptEarlyToken() {
    if (!Object.hasOwn(this, "token")) return;
    const early = Object.getOwnPropertyDescriptor(this, "token")?.value;
    Reflect.deleteProperty(this, "token");
    this.token = early;
  }

  #halt() {
    this.#request?.controller.abort();
    this.#request = null;
    clearTimeout(this.#checkTimer);
    clearTimeout(this.#tickTimer);
    this.#checkTimer = this.#tickTimer = 0;
  }

  /** @param {string} attribute @param {number} usual */
  #seconds(attribute, usual) {
    const given = Number(this.getAttribute(attribute) ?? NaN);
    return given >= 1 ? given : usual;
  }

  /** Until its end by the server's clock; null when that is not known. */
  #remainingMs() {
    if (this.#known?.status !== "running") return null;
    const end = Date.parse(this.#known.sandbox_info?.end_time ?? "");
    return Number.isNaN(end) ? null : Math.max(0, end - (Date.now() + this.#skewMs));
  }

  #render() {
    const remainingMs = this.#remainingMs();
    const { states } = this.#internals;
    states.clear();
    states.add(this.status);
    if (this.#isStale) states.add("stale");
    if (this.#request) states.add("busy");
    this.#view.show({
      label: this.#label(),
      isStale: this.#isStale && this.#known !== null,
      remainingMs,
      endsAt: this.sandboxInfo?.end_time ?? "",
      message: this.#notice,
      link: this.status === "running" ? webAddress(this.sandboxInfo?.preview_url) : null,
      offersSync: this.#needsSync(),
      isBusy: this.#request?.kind === "sync" || this.#notBefore > Date.now(),
    });
    clearTimeout(this.#tickTimer);
    if (remainingMs && this.isConnected && isVisible()) {
      this.#tickTimer = setTimeout(() => this.#render(), remainingMs % 1000 || 1000);
    }
  }

  #label() {
    if (!this.getAttribute("project-id")) return "No project";
    if (this.#request?.kind === "sync") return "Syncing…";
    if (!this.#known && this.#request) return "Checking…";
    return LABELS[this.status];
  }

  /** @param {string} name @param {StatusAnswer | SyncAnswer} detail */
  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true }));
  }
}

/** What is seen and spoken; server data goes in as text only. */
class View {
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
    const dot = part("span", "dot");
    dot.setAttribute("aria-hidden", "true");
    const seen = [dot, slot("", ""), this.state, this.stale, this.countdown];
    const more = [this.link, this.button, this.message, this.spoken];
    root.append(part("div", "root", ...seen, ...more));
  }

  /**
   * @param {{label: string, isStale: boolean, remainingMs: number | null, endsAt: string,
   *   message: string, link: string | null, offersSync: boolean, isBusy: boolean}} now
   */
  show(now) {
    write(this.state, now.label);
    this.stale.hidden = !now.isStale;
    this.countdown.hidden = now.remainingMs === null;
    write(this.countdown, `${clockTime(now.remainingMs ?? 0)} left`);
    this.countdown.dateTime = now.endsAt;
    write(this.message, now.message);
    this.message.hidden = !now.message;
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

const isVisible = () => document.visibilityState === "visible";

/** @param {number} ms */
function clockTime(ms) {
  const seconds = Math.ceil(ms / 1000);
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  return h ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

/** The address if a browser may open it: a server's `javascript:` is none. @param {unknown} text */
function webAddress(text) {
  const url = typeof text === "string" ? URL.parse(text) : null;
  return url && ["http:", "https:"].includes(url.protocol) ? url.href : null;
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

if (!customElements.get("sandbox-status")) customElements.define("sandbox-status", SandboxStatus);
