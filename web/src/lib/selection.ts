/** What to ask a replay for, so that it has the rows of some channels and few others. Pure. */
import { streamLabel } from "./channel";

export interface TableSelection {
  readonly table: string;
  /** Values of tags that all of the streams have: of one tag any, of several all. */
  readonly tags: readonly (readonly [tag: string, value: string])[];
  readonly fields: readonly string[];
  /** Rows of other streams are to be left out. */
  readonly streams: ReadonlySet<string>;
}

export function selectionOf(
  channels: readonly { readonly stream: string; readonly field: string }[],
): TableSelection[] {
  const tables = new Map<string, { fields: Set<string>; streams: Set<string>; tags: [string, string][][] }>();
  for (const { stream, field } of channels) {
    const { table, tags } = streamLabel(stream);
    let entry = tables.get(table);
    if (!entry) tables.set(table, (entry = { fields: new Set(), streams: new Set(), tags: [] }));
    entry.fields.add(field);
    if (entry.streams.has(stream)) continue;
    entry.streams.add(stream);
    entry.tags.push(tags);
  }
  return [...tables].map(([table, { fields, streams, tags }]) => {
    const [first = [], ...others] = tags;
    // A tag that one of them lacks would leave that one out.
    const common = first
      .map(([tag]) => tag)
      .filter((tag) => others.every((each) => each.some(([name]) => name === tag)));
    const pairs = new Map<string, readonly [string, string]>();
    for (const [tag, value] of tags.flat()) if (common.includes(tag)) pairs.set(`${tag}=${value}`, [tag, value]);
    return { table, tags: [...pairs.values()], fields: [...fields], streams };
  });
}
