/** Which channels share a plot, and which of these a vertical scale. Pure. */
import type { Layout } from "../lib/address";
import type { Channel } from "./channels";

/** One plot: the channels that are drawn over each other. */
export interface Plot {
  readonly key: string;
  readonly channels: readonly Channel[];
}

/** A vertical scale of a plot, and the channels that are drawn by it. */
export interface Scale {
  readonly key: string;
  readonly channels: readonly Channel[];
}

export function plotsOf(all: readonly Channel[], layout: Layout): Plot[] {
  if (layout === "stack") return all.map((channel) => ({ key: channel.name, channels: [channel] }));
  if (layout === "all") return all.length > 0 ? [{ key: "*", channels: all }] : [];
  const fields = [...new Set(all.map((channel) => channel.field))];
  return fields.map((field) => ({ key: field, channels: all.filter((channel) => channel.field === field) }));
}

/**
 * The scales of a plot: one; or where its channels are of two fields, which are mostly two units, that of the first on the
 * left and that of the second on the right. More than two scales nobody can read.
 */
export function scalesOf(plot: Plot): readonly [left: Scale, right?: Scale] {
  const [first, second, ...more] = new Set(plot.channels.map((channel) => channel.field));
  if (first === undefined || second === undefined || more.length > 0) return [plot];
  const of = (field: string): Channel[] => plot.channels.filter((channel) => channel.field === field);
  return [
    { key: plot.key, channels: of(first) },
    { key: `${plot.key}:2`, channels: of(second) },
  ];
}

/** Whether a channel is drawn by the scale on the right. */
export function isOnTheRight(plot: Plot, channel: Channel): boolean {
  return scalesOf(plot)[1]?.channels.includes(channel) ?? false;
}
