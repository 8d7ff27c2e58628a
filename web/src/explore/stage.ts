/** What the rooms around the plots need of them: what is in view, and how it moves. */
import type { StreamInfo } from "../api/streams";
import type { Emitter } from "../lib/emitter";
import type { Span } from "../lib/time";

export interface Stage {
  readonly changed: Emitter;
  readonly goal: Span;
  readonly view: Span;
  readonly cursor: number | undefined;
  readonly channels: {
    readonly all: readonly { readonly name: string; readonly stream: string; readonly field: string }[];
    extent(): Span | undefined;
  };
  show(span: Span): void;
  /** Leaves what moves by itself, to stay with what is in view. */
  stand(): void;
  turnTo(span: Span): void;
  setCursor(fraction: number | undefined): void;
  select(names: readonly string[], known?: readonly StreamInfo[]): void;
  redraw(): void;
  /** Draws again in so many milliseconds. */
  redrawIn(ms: number): void;
}
