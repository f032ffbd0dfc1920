/** Whether a person is there, for `<sandbox-status>`. */

const EVENTS = ["pointermove", "pointerdown", "keydown", "touchstart", "wheel"];

export class Activity {
  #at = -Infinity;
  #pointer = "";

  /** Call back at each sign of a person. @param {() => void} told @param {AbortSignal} signal */
  watch(told, signal) {
    const heard = (/** @type {Event} */ event) => {
      if (this.#isOfPerson(event)) {
        this.#at = Date.now();
        told();
      }
    };
    for (const name of EVENTS) {
      window.addEventListener(name, heard, { signal, passive: true, capture: true });
    }
  }

  /** @param {number} ms */
  isWithin(ms) {
    return Date.now() - this.#at <= ms;
  }

  /** @param {Event} event */
  #isOfPerson(event) {
    if (!event.isTrusted) return false;
    if (!(event instanceof PointerEvent) || event.type !== "pointermove") return true;
    const place = `${event.screenX},${event.screenY}`;
    if (place === this.#pointer) return false; // the page moved, not the person
    this.#pointer = place;
    return true;
  }
}
