/** What an access token of the server says of itself; only the server checks it. */

const PREFIX = "sat-";
const PARAMETER = "sandyard_token";
const LONGEST_WARNING_MS = 60_000;

/** @typedef {{sub: string, scp: string[], exp: number}} Claims */

/** The claims; null if it is another credential. @param {string} token @returns {Claims | null} */
export function claimsOf(token) {
  if (!token.startsWith(PREFIX)) return null;
  try {
    const part = token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/");
    const { sub, scp, exp } = JSON.parse(atob(part));
    return Array.isArray(scp) && Number.isFinite(exp) ? { sub, scp, exp } : null;
  } catch {
    return null;
  }
}

/** The link by which the token opens a preview; null if it may not.
 * @param {string} address @param {string} token */
export function linkWith(address, token) {
  if (!claimsOf(token)?.scp.includes("view")) return null;
  const url = new URL(address);
  url.searchParams.set(PARAMETER, token);
  return url.href;
}

/** How long until its page should renew it: a minute before its end, or half of what is left.
 * @param {string} token @param {number} now By the server's clock. */
export function renewInMs(token, now) {
  const claims = claimsOf(token);
  if (!claims) return null;
  const left = Math.max(0, claims.exp * 1000 - now);
  return left - Math.min(LONGEST_WARNING_MS, left / 2);
}
