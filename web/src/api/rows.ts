/** `GET /api/v1/scan`: some rows of a stream as they are. */
import type { Instant, Span } from "../lib/time";
import { integer, list, object, text } from "./check";
import { failure, type Client, type Outcome } from "./client";

export interface Rows {
  readonly time: readonly Instant[];
  /** Values of each field, one for each time; nothing where a row has none. */
  readonly fields: readonly (readonly [name: string, values: readonly unknown[]])[];
  /** There are more in the span. */
  readonly more: boolean;
}

export async function fetchRows(
  client: Client,
  stream: string,
  span: Span,
  limit: number,
  signal?: AbortSignal,
  past?: string,
): Promise<Outcome<Rows>> {
  const query: [string, string][] = [
    ["stream", stream],
    ["from", String(span.from)],
    ["to", String(span.to)],
    ["limit", String(limit)],
  ];
  if (past !== undefined) query.push(["snapshot", past]);
  const outcome = await client.json("api/v1/scan", query, signal ? { signal } : {});
  if (!outcome.ok) return outcome;
  const body = object(outcome.value);
  const fields = object(body?.["fields"]);
  if (!body || !fields || text(body["stream"]) === undefined) {
    return failure("FORMAT", "the rows have an unknown formatat");
  }
  return {
    ok: true,
    value: {
      time: list(body["time"]).flatMap((each) => integer(each) ?? []),
      fields: Object.entries(fields).map(([name, values]) => [name, list(values)] as const),
      more: body["more"] === true,
    },
  };
}
