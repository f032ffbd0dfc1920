/**
 * `<sandbox-status project-id="prj-…">`: shows whether a project's preview runs and for how long.
 *
 * It asks the server and is never sure by itself: trouble keeps the last known state, marked as
 * such, and only an answer that the preview has ended leads to a new one, once the person is there.
 *
 * Attributes: `project-id`, `base-url` (else this origin), `interval` and `active-within` (seconds).
 * Property: `token`, sent as a bearer token and kept out of the DOM; without one, cookies are sent.
 * Property: `previewLink`, a link that opens a private preview; without one, a token with the scope
 * `view` opens it, and without that it has no link.
 * Events: `sandbox-status` and `sandbox-synced`, each with the server's answer as `detail`;
 * `sandbox-token-expiring` a minute before the token ends: set a new one, and nothing is seen of it;
 * `sandbox-unauthorized` when the token has expired or is refused: nothing is asked until a new one.
 * Slots: the default one (a name for it), `open` and `sync` (the texts of link and button).
 * Parts: root, dot, state, stale, countdown, message, lines, link, button.
 * States: `:state(running)`, expired, not_found, unknown, and stale, busy.
 * Not seen as activity: what the person does inside an iframe, since the browser hides it from us.
 *
 * @typedef {import("./sandbox-status-requests.js").Status} Status
 * @typedef {import("./sandbox-status-requests.js").SandboxInfo} SandboxInfo
 * @typedef {import("./sandbox-status-requests.js").StatusAnswer} StatusAnswer
 * @typedef {import("./sandbox-status-requests.js").SyncAnswer} SyncAnswer
 */

import { Activity } from "./sandbox-status-activity.js";
import { ask, projectUrl, Trouble } from "./sandbox-status-requests.js";
import { claimsOf, linkWith, renewInMs } from "./sandbox-status-token.js";
import { LABELS, PHASES, View } from "./sandbox-status-view.js";

const INTERVAL_SEC = 60;
const ACTIVE_WITHIN_SEC = 60;
const FIRST_RETRY_MS = 5_000;
const LAST_RETRY_MS = 300_000;
const LONGEST_TIMER_MS = 2 ** 31 - 1;
const UNSETTLED_MS = 2_000;
const STARTING = ["created", "installed", "restarted"];
const PATIENCE_MS = { check: 30_000, sync: 120_000 };
const UNREACHABLE = "The server cannot be reached. It is asked again.";
const UNREADABLE = "The server's answer cannot be read.";
export class SandboxStatus extends HTMLElement {
  static observedAttributes = ["project-id", "base-url", "interval"];

  #internals = this.attachInternals();
  #view = new View(this.attachShadow({ mode: "open" }), () => this.sync());
  #token = "";
  #previewLink = "";
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
  #expiryTimer = 0;
  #failures = 0;
  /** The server asked to be left alone until then. */
  #notBefore = 0;
  /** The server will not sync; only the person may ask again. */
  #isRefused = false;
  #activity = new Activity();
  /** How far the server's clock is ahead of this one. */
  #skewMs = 0;

  set previewLink(/** @type {string | null | undefined} */ value) {
    this.#previewLink = value ?? "";
    if (this.isConnected) this.#render();
  }

  /** Write-only, so that no other script reads it here. */
  set token(/** @type {string | null | undefined} */ value) {
    const token = (value ?? "").trim();
    if (token === this.#token) return;
    const [before, after] = [claimsOf(this.#token)?.sub, claimsOf(token)?.sub];
    this.#token = token;
    this.#tellOfExpiry();
    if (!after || before !== after) return this.#restart();
    this.#notBefore = 0; // renewed: what is known stays
    this.#render();
    this.check();
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
    this.#adoptEarly("token");
    this.#adoptEarly("previewLink");
    this.#listeners = new AbortController();
    const { signal } = this.#listeners;
    this.#activity.watch(() => this.#syncIfActive(), signal);
    document.addEventListener("visibilitychange", () => this.#visibilityChanged(), { signal });
    window.addEventListener("online", () => this.check(), { signal });
    this.#tellOfExpiry();
    this.#render();
    this.check();
  }

  disconnectedCallback() {
    this.#listeners?.abort();
    clearTimeout(this.#expiryTimer);
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
      answer = await this.#ask(method, path, controller.signal);
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
  async #ask(method, path, signal) {
    const project = this.getAttribute("project-id") ?? "";
    const url = projectUrl(this.getAttribute("base-url"), project, path);
    const { answer, skewMs } = await ask({ method, url, token: this.#token, signal });
    this.#skewMs = skewMs;
    return answer;
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
    const isStarting = STARTING.includes(answer.data.outcome ?? "");
    this.#checkLater(isStarting ? UNSETTLED_MS : this.#untilNextCheck());
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
    if (trouble.isUnauthorized) this.#tell("sandbox-unauthorized", { message: trouble.message });
  }

  /** The next poll, or the moment of its end if that comes first. */
  #untilNextCheck() {
    const isSettled = !["installing", "starting"].includes(this.#phase());
    const interval = isSettled ? this.#seconds("interval", INTERVAL_SEC) * 1000 : UNSETTLED_MS;
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
    if (this.#needsSync() && this.#activity.isWithin(activeWithinMs) && !isWaiting) this.sync();
  }

  #needsSync() {
    return this.#known?.action_required === "sync_needed" && !this.#isStale;
  }

  #visibilityChanged() {
    if (isVisible()) this.check();
    else this.#checkLater(0); // takes the timer away
    this.#render();
  }

  /** In time for its page to set a new one. */
  #tellOfExpiry() {
    clearTimeout(this.#expiryTimer);
    const ms = this.isConnected ? renewInMs(this.#token, Date.now() + this.#skewMs) : null;
    if (ms === null) return;
    const tell = () => this.#tell("sandbox-token-expiring", { message: "The token ends soon." });
    this.#expiryTimer = setTimeout(tell, Math.min(ms, LONGEST_TIMER_MS));
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

  /** What was set before this class was known lies on the element itself.
   * @param {"token" | "previewLink"} name */
  #adoptEarly(name) {
    if (!Object.hasOwn(this, name)) return;
    const early = Object.getOwnPropertyDescriptor(this, name)?.value;
    Reflect.deleteProperty(this, name);
    this[name] = early;
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
      lines: this.#phase() ? (this.#known?.application?.last_lines ?? []) : [],
      link: this.status === "running" ? this.#link() : null,
      offersSync: this.#needsSync(),
      isBusy: this.#request?.kind === "sync" || this.#notBefore > Date.now(),
    });
    clearTimeout(this.#tickTimer);
    if (remainingMs && this.isConnected && isVisible()) {
      this.#tickTimer = setTimeout(() => this.#render(), remainingMs % 1000 || 1000);
    }
  }

  /** A private preview's own address, whose host names the project, opens for nobody by itself. */
  #link() {
    if (this.#previewLink) return webAddress(this.#previewLink);
    const address = webAddress(this.sandboxInfo?.preview_url);
    const project = `-${this.getAttribute("project-id")?.toLowerCase()}.`;
    const isPrivate = address && new URL(address).hostname.includes(project);
    return isPrivate ? linkWith(address, this.#token) : address;
  }

  /** Of what runs in the preview; "" if that is not known. */
  #phase() {
    const phase = this.status === "running" ? this.#known?.application?.phase : "";
    return typeof phase === "string" && Object.hasOwn(PHASES, phase) ? phase : "";
  }

  #label() {
    if (!this.getAttribute("project-id")) return "No project";
    if (this.#request?.kind === "sync") return "Syncing…";
    if (!this.#known && this.#request) return "Checking…";
    return PHASES[this.#phase()] ?? LABELS[this.status];
  }

  /** @param {string} name @param {StatusAnswer | SyncAnswer | {message: string}} detail */
  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true }));
  }
}

const isVisible = () => document.visibilityState === "visible";

/** The address if a browser may open it: a server's `javascript:` is none. @param {unknown} text */
function webAddress(text) {
  const url = typeof text === "string" ? URL.parse(text) : null;
  return url && ["http:", "https:"].includes(url.protocol) ? url.href : null;
}

if (!customElements.get("sandbox-status")) customElements.define("sandbox-status", SandboxStatus);
