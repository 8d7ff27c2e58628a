/** The time zone that was chosen on this device. */
import { isZone, type Zone } from "../lib/time";

const KEY = "headwater.zone";

export function readZone(): Zone {
  const kept = typeof localStorage === "undefined" ? null : localStorage.getItem(KEY);
  return kept !== null && isZone(kept) ? kept : "local";
}

export function keepZone(zone: Zone): void {
  try {
    localStorage.setItem(KEY, zone);
  } catch {
    // A full storage: the choice is only not kept.
  }
}
