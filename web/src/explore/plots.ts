/** Which channels share a plot. Pure. */
import type { Layout } from "../lib/address";
import type { Channel } from "./channels";

/** One plot: the channels that share a scale. */
export interface Plot {
  readonly key: string;
  readonly channels: readonly Channel[];
}

export function plotsOf(all: readonly Channel[], layout: Layout): Plot[] {
  if (layout === "stack") return all.map((channel) => ({ key: channel.name, channels: [channel] }));
  if (layout === "all") return all.length > 0 ? [{ key: "*", channels: all }] : [];
  const fields = [...new Set(all.map((channel) => channel.field))];
  return fields.map((field) => ({ key: field, channels: all.filter((channel) => channel.field === field) }));
}
