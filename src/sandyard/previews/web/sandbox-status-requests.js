/**
 * How `<sandbox-status>` asks the server.
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
 * @property {{phase: string, last_lines: string[]} | null} [application] What runs in it.
 *
 * @typedef {object} SyncAnswer
 * @property {boolean} success
 * @property {{projectId: string, sandbox_info: SandboxInfo, filesCount: number, version: number,
 *   outcome?: string}} data
 * @property {string} message
 */

const TOLERATED_SKEW_MS = 2_000;

/** What kept an answer from coming. */
export class Trouble extends Error {
  /**
   * @param {string} message
   * @param {{isFinal?: boolean, isUnauthorized?: boolean, retryAfterMs?: number | null}} [more]
   */
  constructor(message, { isFinal = false, isUnauthorized = false, retryAfterMs = null } = {}) {
    super(message);
    /** Asking again would bring the same answer. */
    this.isFinal = isFinal;
    this.isUnauthorized = isUnauthorized;
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
      {
        isFinal: !mayPass && retryAfterMs === null,
        isUnauthorized: response.status === 401,
        retryAfterMs,
      },
    );
  }
}

/**
 * The answer, and how far the server's clock is ahead of this one; Trouble if there is none.
 * @param {{method: string, url: string, token: string, signal: AbortSignal}} request
 */
export async function ask({ method, url, token, signal }) {
  const response = await fetch(url, {
    method,
    signal,
    headers: token ? { Authorization: `Bearer ${token}` } : {},
    credentials: token ? "omit" : "include",
    cache: "no-store",
    redirect: "error",
  });
  if (!response.ok) throw await Trouble.of(response);
  const skew = Date.parse(response.headers.get("date") ?? "") - Date.now();
  const skewMs = Math.abs(skew) > TOLERATED_SKEW_MS ? skew : 0;
  return { answer: await response.json(), skewMs };
}

/**
 * Where a project's call is.
 * @param {string | null} base The server; else this origin.
 * @param {string} project
 * @param {string} path
 */
export function projectUrl(base, project, path) {
  const server = new URL(base || "/", document.baseURI).href.replace(/\/+$/, "");
  return `${server}/api/v1/projects/${encodeURIComponent(project)}/${path}`;
}
