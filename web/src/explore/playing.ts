/**
 * The replay on the plots: which range it plays, and how the view goes with it.
 *
 * Concurrency: the page's one thread.
 */
import { fractionOf, panned, width } from "../lib/view";
import type { Replay } from "./replay";
import type { Stage } from "./stage";

export class Playing {
  constructor(
    private readonly stage: Stage,
    private readonly replay: Replay,
  ) {}

  /** Begins to play what is in view, or ends that. */
  toggle(): void {
    const { stage, replay } = this;
    if (replay.range) {
      replay.close();
      return;
    }
    stage.stand();
    const extent = stage.channels.extent();
    const { goal } = stage;
    // Where there are no data there is nothing to wait for.
    const from = extent && extent.from > goal.from ? extent.from : goal.from;
    const to = extent && extent.to < goal.to ? extent.to + 1n : goal.to;
    replay.open({ from, to });
  }

  /** Goes on with it; the view turns a page when the playhead leaves it. */
  goOn(pixels: number): void {
    const { stage, replay } = this;
    if (!replay.isPlaying) return;
    replay.advance();
    const share = fractionOf(stage.goal, replay.at);
    if (share > 1 && share < 1.5) stage.turnTo(panned(stage.goal, share - 0.1));
    const wait = replay.speed === "max" ? 0 : width(stage.view) / 1e6 / replay.speed / pixels / 3;
    stage.redrawIn(Math.min(200, Math.max(16, wait)));
  }
}
