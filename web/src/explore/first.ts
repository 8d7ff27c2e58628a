/**
 * What the page asks for before it is drawn for the first time: the list of streams, and some that are worth a look if the
 * address names none. A first plot waits for these answers, so they are under way while the page is built.
 *
 * Invariant: an answer is handed out once; who comes later gets a new one.
 */
import type { Client, Outcome } from "../api/client";
import { fetchStorage, type TableUse } from "../api/storage";
import { fetchStreams, type StreamInfo, type StreamPage } from "../api/streams";

/** Streams of a piece of the list. */
export const LIST_LIMIT = 100;

export class FirstLook {
  private list: Promise<Outcome<StreamPage>> | undefined;
  private likely: Promise<readonly StreamInfo[]> | undefined;

  constructor(private readonly client: Client) {}

  /** Asks already. @param isChosen whether the address says what to show */
  begin(isChosen: boolean): void {
    this.list = fetchStreams(this.client, { limit: LIST_LIMIT });
    if (!isChosen) this.likely = ofLargestTable(this.client);
  }

  /** The beginning of the list of streams. */
  takeList(signal: AbortSignal): Promise<Outcome<StreamPage>> {
    const list = this.list ?? fetchStreams(this.client, { limit: LIST_LIMIT }, signal);
    this.list = undefined;
    return list;
  }

  /** Streams that have much to show; none if nobody knows. */
  takeLikely(): Promise<readonly StreamInfo[]> {
    const likely = this.likely ?? ofLargestTable(this.client);
    this.likely = undefined;
    return likely;
  }
}

/** Some streams of the table that has the most events for each of its streams; none if that is not told. */
async function ofLargestTable(client: Client): Promise<readonly StreamInfo[]> {
  const storage = await fetchStorage(client, false);
  if (!storage.ok) return [];
  const share = (table: TableUse): number => (table.events ?? 0) / Math.max(1, table.streams ?? 1);
  const largest = [...storage.value.tables].sort((a, b) => share(b) - share(a))[0];
  if (!largest) return [];
  const found = await fetchStreams(client, { table: largest.table, limit: 20 });
  return found.ok ? found.value.streams : [];
}
