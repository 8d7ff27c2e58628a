/**
 * What is known of the channels on screen: their field's type, how far their data reach, and values that arrived live.
 *
 * Invariant: `tail` is in order of time and bounded; a channel keeps its colour while it is on screen.
 */
import type { StreamInfo } from "../api/streams";
import { channelOf, splitChannel } from "../lib/channel";
import type { Points, TailPoint } from "../lib/compose";
import type { Instant, Span } from "../lib/time";

export const COLOURS = 8;
const TAIL_MAX = 20_000;

export interface Channel {
  readonly name: string;
  readonly stream: string;
  readonly field: string;
  /** Slot of the palette. */
  readonly colour: number;
  type: string | undefined;
  /** Why there is nothing to draw, as far as the list of streams tells. */
  problem: string | undefined;
  /** First and last event; `undefined` until known. */
  extent: Span | undefined;
  events: number | undefined;
  tail: TailPoint[];
  /** The newest event when listening began: what came after it is in `tail`. */
  liveFrom: Instant | undefined;
  /** What was drawn last. */
  points: Points | undefined;
  /** Whether it has been drawn without holes once; from then on it must stay so. */
  shown: boolean;
}

export class Channels {
  private list: Channel[] = [];
  private count = 0;
  /** Names that were chosen and are none of channels. */
  misnamed: readonly string[] = [];

  get all(): readonly Channel[] {
    return this.list;
  }

  /** How many live values have come so far. */
  get arrivals(): number {
    return this.count;
  }

  get(name: string): Channel | undefined {
    return this.list.find((channel) => channel.name === name);
  }

  /** Replaces the selection; what stays keeps what is known of it. Gives the names that left. */
  set(names: readonly string[]): string[] {
    const left = this.list.filter((channel) => !names.includes(channel.name)).map((channel) => channel.name);
    const kept = this.list.filter((channel) => names.includes(channel.name));
    const used = new Set(kept.map((channel) => channel.colour));
    this.misnamed = names.filter((name) => !splitChannel(name));
    this.list = names.flatMap((name) => {
      const before = kept.find((channel) => channel.name === name);
      if (before) return [before];
      const parts = splitChannel(name);
      if (!parts) return [];
      let colour = 0;
      while (used.has(colour) && colour < COLOURS - 1) colour++;
      if (used.size >= COLOURS) colour = used.size % COLOURS;
      used.add(colour);
      return [
        {
          name,
          ...parts,
          colour,
          type: undefined,
          problem: undefined,
          extent: undefined,
          events: undefined,
          tail: [],
          liveFrom: undefined,
          points: undefined,
          shown: false,
        },
      ];
    });
    return left;
  }

  /** Takes in what the server says of a stream; gives the channels of which something changed since it last said. */
  learn(info: StreamInfo): Channel[] {
    return this.list.filter((channel) => {
      if (channel.stream !== info.stream && !info.fields.some((f) => channelOf(info.stream, f.name) === channel.name)) {
        return false;
      }
      const field = info.fields.find(({ name }) => name === channel.field);
      channel.type = field?.type ?? channel.type;
      channel.problem = field ? undefined : `this stream has no field “${channel.field}”`;
      const isKnown = channel.events !== undefined;
      const isChanged =
        channel.events !== info.events || channel.extent?.to !== info.last || channel.extent?.from !== info.first;
      channel.events = info.events;
      if (info.first !== undefined && info.last !== undefined) channel.extent = { from: info.first, to: info.last };
      return isKnown && isChanged;
    });
  }

  /** What is known is of another state of the database. */
  forget(): void {
    for (const channel of this.list) {
      channel.problem = undefined;
      channel.extent = undefined;
      channel.events = undefined;
      channel.tail = [];
      channel.liveFrom = undefined;
      channel.points = undefined;
      channel.shown = false;
    }
  }

  /** Takes in that the server knows no such streams. */
  miss(streams: readonly string[]): void {
    for (const channel of this.list) {
      if (streams.includes(channel.stream)) channel.problem = `there is no stream “${channel.stream}”`;
    }
  }

  /** Takes in live values; gives false for a channel that is not on screen. */
  arrive(name: string, time: readonly Instant[], value: readonly number[]): boolean {
    const channel = this.get(name);
    if (!channel) return false;
    time.forEach((at, index) => {
      const point = { time: at, value: value[index] ?? NaN, arrival: ++this.count };
      const { tail } = channel;
      let place = tail.length;
      while (place > 0 && (tail[place - 1]?.time ?? at) > at) place--;
      if (tail[place - 1]?.time === at) tail[place - 1] = point;
      else tail.splice(place, 0, point);
      const { extent } = channel;
      channel.extent = extent
        ? { from: at < extent.from ? at : extent.from, to: at > extent.to ? at : extent.to }
        : { from: at, to: at };
    });
    if (channel.tail.length > TAIL_MAX) {
      const gone = channel.tail.splice(0, channel.tail.length - TAIL_MAX);
      channel.liveFrom = gone[gone.length - 1]?.time;
    }
    return true;
  }

  /** From the first to the last event of all channels. */
  extent(): Span | undefined {
    let out: Span | undefined;
    for (const { extent } of this.list) {
      if (!extent) continue;
      out = out
        ? { from: extent.from < out.from ? extent.from : out.from, to: extent.to > out.to ? extent.to : out.to }
        : extent;
    }
    return out;
  }
}
