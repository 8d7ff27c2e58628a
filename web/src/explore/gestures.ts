/**
 * Wheel, pointer and pinch on the plots, as movements of the explorer.
 *
 * One pointer drags, with inertia when let go; two pinch; with Shift a pointer marks a part to zoom into. Vertical touch
 * stays with the page, so that a tall stack can be scrolled; where the plots are higher than their place the wheel does the
 * same, and zooms with Ctrl.
 */
import type { Instant, Span } from "../lib/time";
import { instantAt, panned, pinched } from "../lib/view";
import type { Explorer } from "./explorer";

/** Where the plots' time axis lies on the page, in CSS pixels. */
export interface Area {
  readonly left: number;
  readonly width: number;
}

export interface GestureTarget {
  area(): Area;
  /** Shows the part that is being marked; `undefined` takes it away. */
  mark(part: readonly [number, number] | undefined): void;
  /** A click that moved nothing, at a fraction of the width; `undefined` when it turned out to be a double one. */
  pick(fraction: number | undefined, on: Element): void;
  /** The wheel scrolled where it might have zoomed. */
  scrolled(): void;
}

/** Parts of the plots that have movements of their own. */
const OWN = "button, a, input, .handle, .rows";

const WHEEL_ZOOM = 0.0022;
const DRAG_MIN_PX = 3;
const SPEED_MS = 80;

interface Finger {
  x: number;
  readonly startX: number;
}

export function attachGestures(element: HTMLElement, explorer: Explorer, target: GestureTarget): () => void {
  const fingers = new Map<number, Finger>();
  let start: Span = explorer.view;
  let isDragging = false;
  let marking: number | undefined;
  let pinch: readonly [Instant, Instant] | undefined;
  let trail: { ms: number; x: number }[] = [];

  const fraction = (x: number): number => {
    const { left, width } = target.area();
    return (x - left) / width;
  };

  const begin = (): void => {
    start = explorer.view;
    trail = [];
    const [a, b] = [...fingers.values()];
    pinch = a && b ? [instantAt(start, fraction(a.x)), instantAt(start, fraction(b.x))] : undefined;
  };

  const onWheel = (event: WheelEvent): void => {
    const isAcross = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!event.ctrlKey && !isAcross && event.target instanceof Element) {
      const isHigher = element.scrollHeight > element.clientHeight + 1;
      // The browser's own movement, of the plots or of a long legend.
      if (event.target.closest(".legend, .rows")) return;
      if (isHigher) {
        target.scrolled();
        return;
      }
    }
    event.preventDefault();
    const unit =
      event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : event.deltaMode === WheelEvent.DOM_DELTA_PAGE ? 400 : 1;
    const [dx, dy] = [event.deltaX * unit, event.deltaY * unit];
    if (event.shiftKey || Math.abs(dx) > Math.abs(dy)) {
      explorer.panBy((Math.abs(dx) > Math.abs(dy) ? dx : dy) / target.area().width);
    } else if (dy !== 0) {
      // A trackpad's pinch comes as a wheel with Ctrl, in small steps.
      const speed = event.ctrlKey ? WHEEL_ZOOM * 4 : WHEEL_ZOOM;
      explorer.zoomBy(Math.exp(Math.max(-1, Math.min(1, dy * speed))), fraction(event.clientX));
    }
  };

  const onDown = (event: PointerEvent): void => {
    if (event.button !== 0 || (event.target instanceof Element && event.target.closest(OWN))) return;
    element.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, { x: event.clientX, startX: event.clientX });
    explorer.halt();
    isDragging = false;
    marking = event.shiftKey && fingers.size === 1 ? fraction(event.clientX) : undefined;
    begin();
  };

  const onMove = (event: PointerEvent): void => {
    const finger = fingers.get(event.pointerId);
    if (!finger) {
      if (event.pointerType === "mouse") explorer.setCursor(inside(fraction(event.clientX)));
      return;
    }
    finger.x = event.clientX;
    if (marking !== undefined) {
      target.mark([marking, fraction(event.clientX)]);
      return;
    }
    if (pinch) {
      const [a, b] = [...fingers.values()];
      const span = a && b ? pinched(pinch[0], pinch[1], fraction(a.x), fraction(b.x)) : null;
      if (span) explorer.dragTo(span);
      return;
    }
    const moved = event.clientX - finger.startX;
    if (!isDragging && Math.abs(moved) < DRAG_MIN_PX) return;
    if (!isDragging) element.classList.add("dragging");
    isDragging = true;
    trail.push({ ms: event.timeStamp, x: event.clientX });
    trail = trail.filter((point) => event.timeStamp - point.ms <= SPEED_MS);
    explorer.dragTo(panned(start, -moved / target.area().width));
    explorer.setCursor(event.pointerType === "mouse" ? inside(fraction(event.clientX)) : undefined);
  };

  const onUp = (event: PointerEvent): void => {
    const finger = fingers.get(event.pointerId);
    if (!fingers.delete(event.pointerId) || !finger) return;
    if (marking !== undefined) {
      const end = fraction(event.clientX);
      target.mark(undefined);
      const [low, high] = [Math.min(marking, end), Math.max(marking, end)];
      marking = undefined;
      if (event.type === "pointerup" && (high - low) * target.area().width > DRAG_MIN_PX) {
        explorer.show({ from: instantAt(start, low), to: instantAt(start, high) });
      }
      return;
    }
    if (fingers.size > 0) {
      // The finger that stays goes on dragging from where it is.
      for (const [id, rest] of fingers) fingers.set(id, { x: rest.x, startX: rest.x });
      begin();
      return;
    }
    element.classList.remove("dragging");
    if (isDragging) {
      const first = trail[0];
      const elapsed = first ? event.timeStamp - first.ms : 0;
      if (first && elapsed > 10) explorer.fling((first.x - event.clientX) / elapsed / target.area().width);
    } else if (event.type === "pointerup") {
      const at = inside(fraction(event.clientX));
      if (event.pointerType !== "mouse") explorer.setCursor(at);
      // The pointer was captured: what it stands on must be looked for.
      const on = document.elementFromPoint(event.clientX, event.clientY);
      if (on) target.pick(at, on);
    }
    isDragging = false;
  };

  const onLeave = (event: PointerEvent): void => {
    if (event.pointerType === "mouse" && fingers.size === 0) explorer.setCursor(undefined);
  };
  const onDouble = (event: MouseEvent): void => {
    if (event.target instanceof Element && event.target.closest(OWN)) return;
    target.pick(undefined, element);
    explorer.fit();
  };

  element.addEventListener("wheel", onWheel, { passive: false });
  element.addEventListener("pointerdown", onDown);
  element.addEventListener("pointermove", onMove);
  element.addEventListener("pointerup", onUp);
  element.addEventListener("pointercancel", onUp);
  element.addEventListener("pointerleave", onLeave);
  element.addEventListener("dblclick", onDouble);
  return () => {
    element.removeEventListener("wheel", onWheel);
    element.removeEventListener("pointerdown", onDown);
    element.removeEventListener("pointermove", onMove);
    element.removeEventListener("pointerup", onUp);
    element.removeEventListener("pointercancel", onUp);
    element.removeEventListener("pointerleave", onLeave);
    element.removeEventListener("dblclick", onDouble);
  };
}

function inside(fraction: number): number | undefined {
  return fraction >= 0 && fraction <= 1 ? fraction : undefined;
}
