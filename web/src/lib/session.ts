/**
 * The token of whoever looks, and whether the server wants one.
 *
 * Invariant: the token is kept for this tab, or on this device if asked to, and sent to nobody but the server the page
 * came from.
 */
import type { Credentials } from "../api/client";
import { Emitter } from "./emitter";

const KEY = "headwater.token";

export class Session implements Credentials {
  readonly changed = new Emitter();
  /** The server has refused what it was given: a token must be asked for. */
  needed = false;

  token(): string | undefined {
    return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? undefined;
  }

  refused(): void {
    if (this.needed) return;
    this.needed = true;
    this.changed.emit();
  }

  give(token: string, remember: boolean): void {
    sessionStorage.removeItem(KEY);
    localStorage.removeItem(KEY);
    (remember ? localStorage : sessionStorage).setItem(KEY, token);
    this.needed = false;
    this.changed.emit();
  }
}
