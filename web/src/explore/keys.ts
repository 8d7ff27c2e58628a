/** Keys of the plots. Those with Ctrl, Alt or Meta stay the browser's, and those typed into a field its own. */
import type { Explorer } from "./explorer";

export interface KeyActions {
  help(): void;
  search(): void;
  /** Scrolls the plots by so many of their pages; positive = down. */
  scroll(pages: number): void;
}

const ZOOM = 0.72;
const PAN = 0.18;
const CURSOR_STEP = 0.01;

/** Whether the key was one of ours. */
export function pressKey(event: KeyboardEvent, explorer: Explorer, actions: KeyActions): boolean {
  if (event.ctrlKey || event.altKey || event.metaKey || isTyping(event.target)) return false;
  const anchor = explorer.cursor ?? 0.5;
  switch (event.key.length === 1 ? event.key.toLowerCase() : event.key) {
    case "w":
    case "+":
    case "=":
    case "ArrowUp":
      explorer.zoomBy(ZOOM, anchor);
      return true;
    case "s":
    case "-":
    case "ArrowDown":
      explorer.zoomBy(1 / ZOOM, anchor);
      return true;
    case "a":
    case "ArrowLeft":
      explorer.panBy(-PAN);
      return true;
    case "d":
    case "ArrowRight":
      explorer.panBy(PAN);
      return true;
    case "f":
      explorer.fit();
      return true;
    case "l":
      explorer.setLive(!explorer.live);
      return true;
    case "r":
      explorer.playing.toggle();
      return true;
    case " ":
      // On a button it presses that one.
      if (!explorer.replay.range || isPressed(event.target)) return false;
      explorer.replay.toggle();
      return true;
    case "n":
    case "p":
      explorer.marking.go(event.key.toLowerCase() === "n" ? 1 : -1);
      return true;
    case "u":
      explorer.toggleUtc();
      return true;
    case ",":
      explorer.setCursor(Math.max(0, anchor - CURSOR_STEP));
      return true;
    case ".":
      explorer.setCursor(Math.min(1, anchor + CURSOR_STEP));
      return true;
    case "PageDown":
      actions.scroll(0.9);
      return true;
    case "PageUp":
      actions.scroll(-0.9);
      return true;
    case "?":
      actions.help();
      return true;
    case "/":
      actions.search();
      return true;
    case "Escape":
      explorer.halt();
      explorer.setLive(false);
      explorer.setCursor(undefined);
      return true;
    default:
      return false;
  }
}

/** Fields, menus and the tree of streams use arrows and letters themselves. */
function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof Element && target.closest("input, textarea, select, dialog, [role=tree], [role=menu]") !== null
  );
}

function isPressed(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest("button, a, summary") !== null;
}
