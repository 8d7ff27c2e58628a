/** The bar that plays what the plots show as it happened: begin, play and pause, where it is, how fast. */
import type { JSX } from "preact";
import { useEmitter, useShared } from "../context";
import { SPEEDS, type Replay } from "../explore/replay";
import { formatCount } from "../lib/format";
import { digitsFor, formatInstant, toBig } from "../lib/time";
import { fractionOf } from "../lib/view";
import { Icon } from "./icons";

/** Steps of the slider. */
const STEPS = 1_000;

export function Transport(): JSX.Element | null {
  const { explorer } = useShared();
  const { replay } = explorer;
  useEmitter(replay.changed);
  if (!replay.range) return null;
  return (
    <div class="transport" role="group" aria-label="Replay">
      <button
        type="button"
        class="ghost rewind"
        aria-label="To the beginning"
        title="To the beginning"
        onClick={() => replay.seek(replay.range?.from ?? 0n)}
      >
        <Icon name="rewind" />
      </button>
      <button
        type="button"
        class="primary play"
        aria-label={replay.isPlaying ? "Pause" : "Play"}
        title={replay.isPlaying ? "Pause (Space)" : "Play (Space)"}
        onClick={() => replay.toggle()}
      >
        <Icon name={replay.isPlaying ? "pause" : "play"} />
      </button>
      <Head replay={replay} />
      <div class="group segmented" role="radiogroup" aria-label="Speed">
        {SPEEDS.map((speed) => (
          <button
            type="button"
            key={speed}
            role="radio"
            class={replay.speed === speed ? "ghost on" : "ghost"}
            aria-checked={replay.speed === speed}
            title={speed === "max" ? "As fast as possible" : `${speed} seconds of data per second`}
            onClick={() => replay.setSpeed(speed)}
          >
            {speed === "max" ? "max" : `${speed}×`}
          </button>
        ))}
      </div>
      <button
        type="button"
        class="ghost"
        aria-label="End the replay"
        title="End the replay (R)"
        onClick={() => replay.close()}
      >
        <Icon name="close" />
      </button>
      {replay.error && (
        <p class="error transport-error" role="alert">
          {replay.error.message}
        </p>
      )}
    </div>
  );
}

/** Where the playhead is, to be moved. */
function Head({ replay }: { replay: Replay }): JSX.Element | null {
  const { explorer } = useShared();
  useEmitter(explorer.painted);
  const { range } = replay;
  if (!range) return null;
  const { at } = replay;
  const text = formatInstant(at, explorer.zone, Math.min(3, digitsFor(range, STEPS)));
  return (
    <>
      <input
        type="range"
        class="transport-seek"
        aria-label="Position of the replay"
        aria-valuetext={text}
        min={0}
        max={STEPS}
        step={1}
        value={Math.round(fractionOf(range, at) * STEPS)}
        onInput={(event) => {
          const share = Number(event.currentTarget.value) / STEPS;
          replay.seek(range.from + toBig(Number(range.to - range.from) * share));
        }}
      />
      <span class="transport-at">{text}</span>
      <span class="soft transport-rows">{`${formatCount(replay.rows)} rows`}</span>
    </>
  );
}
