/** Behaviour that menus share. */
import type { RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";

/** Closes a menu on Escape and on a click elsewhere; arrows move between its items. */
export function useMenu(open: boolean, close: () => void): RefObject<HTMLDivElement | null> {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = place.current;
    if (!open || !element) return;
    const items = (): HTMLElement[] => [...element.querySelectorAll<HTMLElement>("[role=menuitem], .popover input")];
    items()[0]?.focus();
    const onKey = (event: KeyboardEvent): void => {
      if (event.key === "Escape") {
        event.stopPropagation();
        close();
        element.querySelector("button")?.focus();
      } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && event.target instanceof HTMLButtonElement) {
        const all = items();
        const at = all.indexOf(event.target);
        if (at >= 0) {
          event.preventDefault();
          all[(at + (event.key === "ArrowDown" ? 1 : all.length - 1)) % all.length]?.focus();
        }
      }
    };
    const onDown = (event: PointerEvent): void => {
      if (event.target instanceof Node && !element.contains(event.target)) close();
    };
    // Wherever the focus is by now: what had it may have been disabled.
    document.addEventListener("keydown", onKey, true);
    document.addEventListener("pointerdown", onDown);
    return () => {
      document.removeEventListener("keydown", onKey, true);
      document.removeEventListener("pointerdown", onDown);
    };
  }, [open]);
  return place;
}
