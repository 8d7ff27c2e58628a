/**
 * What is marked on the plots, and the way from one mark to the next.
 *
 * Invariant: `at` is the place of a mark, or nothing. Concurrency: the page's one thread.
 */
import { CHANNELS_MAX } from "../lib/address";
import { channelOf } from "../lib/channel";
import { isOf, nextMark, type Marks, type PlotMark } from "../lib/marks";
import { instantAt } from "../lib/view";
import type { Stage } from "./stage";

/** A stretch that is gone to takes at least this part of the view. */
const MARK_WIDTHS = 24n;

export class Marking {
  /** What a search, a statement or a watch found. */
  marks: Marks | undefined;
  /** The mark that was gone to last. */
  at: number | undefined;
  /** Who marks, and may mark anew. */
  private owner: object | undefined;

  constructor(private readonly stage: Stage) {}

  /** The mark that was gone to. */
  get current(): PlotMark | undefined {
    return this.at === undefined ? undefined : this.marks?.all[this.at];
  }

  set(marks: Marks | undefined, owner?: object): void {
    this.owner = owner;
    this.marks = marks && marks.all.length > 0 ? marks : undefined;
    this.at = undefined;
    this.stage.redraw();
    this.stage.changed.emit();
  }

  /** Whether what is marked is still this one's. */
  draws(owner: object): boolean {
    return this.owner === owner;
  }

  /** Marks more or fewer of the same: the one that was gone to stays so, as long as it is there. */
  renew(marks: Marks, owner: object): void {
    if (!this.draws(owner)) return;
    const { current } = this;
    this.marks = marks.all.length > 0 ? marks : undefined;
    const at = marks.all.findIndex((mark) => mark.id !== undefined && mark.id === current?.id);
    this.at = at < 0 ? undefined : at;
    this.stage.redraw();
    this.stage.changed.emit();
  }

  /** Goes to the next mark, or the one before: from the last one gone to, or from the cursor. */
  go(direction: 1 | -1): void {
    const { marks, stage } = this;
    if (!marks) return;
    const { all } = marks;
    const from = this.at ?? nextMark(all, instantAt(stage.goal, stage.cursor ?? 0.5), direction);
    const at = this.at === undefined ? (from ?? (direction === 1 ? 0 : all.length - 1)) : this.at + direction;
    this.goTo((at + all.length) % all.length);
  }

  goTo(index: number): void {
    const { stage } = this;
    const mark = this.marks?.all[index];
    if (!mark) return;
    this.at = index;
    const size = stage.goal.to - stage.goal.from;
    const length = mark.to - mark.from;
    // A stretch is shown whole, and so wide that its shape is seen; an instant in a view as wide as before.
    const [least, most] = [length * 3n, length * MARK_WIDTHS];
    const half = (length === 0n ? size : size < least ? least : size > most ? most : size) / 2n;
    const middle = mark.from + length / 2n;
    stage.show({ from: middle - half, to: middle + half });
    stage.setCursor(0.5);
    stage.changed.emit();
  }

  /** Shows the stream of the mark that was gone to, by the field that was looked in. */
  showStream(): void {
    const { current, marks, stage } = this;
    if (current?.stream === undefined || marks?.field === undefined) return;
    const names = stage.channels.all.map((channel) => channel.name);
    const name = channelOf(current.stream, marks.field);
    stage.select(names.length < CHANNELS_MAX ? [...names, name] : [...names.slice(0, -1), name]);
  }

  /** Whether a mark is of a stream that is on screen. */
  isShown(mark: PlotMark): boolean {
    return this.stage.channels.all.some((channel) => isOf(mark, channel.stream));
  }
}
