/** What the server's names for causes and policies mean, in words of people. What is not known is left as it is. */
import type { TierUse } from "../api/storage";
import { formatCount } from "./format";

const CAUSES: Readonly<Record<string, string>> = {
  flush: "stored for the first time",
  merge: "rewritten with late ones",
  touched_merge: "rewritten with late ones",
  late_run: "stored as late ones, to be merged",
  fold: "late ones merged",
  compaction: "combined, or split by time",
  delete: "rewritten without deleted rows",
};

const KINDS: Readonly<Record<string, string>> = {
  log: "commit log",
  leaf: "values",
  index: "aggregates and indexes",
  meta: "names and lists",
};

export function causeWords(cause: string): string {
  return CAUSES[cause] ?? cause.replaceAll("_", " ");
}

export function kindWords(kind: string): string {
  return KINDS[kind] ?? kind.replaceAll("_", " ");
}

/** `separate:0.875,retain=49168`: how memory is shared between events in order and late ones, and what is kept back. */
export function policyWords(policy: string): string {
  const [base = "", ...rest] = policy.split(",");
  const out: string[] = [];
  const separate = /^separate:([\d.]+)$/.exec(base);
  if (base === "conventional") out.push("one buffer for all");
  else if (separate) {
    const share = Number(separate[1]);
    out.push(
      share <= 1
        ? `late ones apart, ${Number((share * 100).toFixed(1))} % for those in order`
        : `late ones apart, ${formatCount(share)} for those in order`,
    );
  } else return policy;
  for (const part of rest) {
    const [name, value = ""] = part.split("=");
    if (name === "retain") out.push(`the newest ${formatCount(Number(value))} held back`);
    else if (name === "leaf") out.push(`leaves of ${formatCount(Number(value))}`);
    else out.push(part);
  }
  return out.join(", ");
}

/** Who decides, and what is in force: `adaptive: separate:0.5 and conventional`. */
export function choiceWords(choice: string): string {
  const match = /^(\w+): (.+)$/.exec(choice);
  if (!match) return policyWords(choice);
  const who = match[1] === "adaptive" ? "chosen by what arrives" : match[1] === "fixed" ? "as set" : match[1];
  return `${(match[2] ?? "").split(" and ").map(policyWords).join("; or ")} (${who})`;
}

/** How a fast tier does: what was lost of its copies, and where room is short. All of it is made good in the background. */
export function tierWords({ index, newest, fastBytes, fastBytesMax }: TierUse): string {
  const out: string[] = [];
  const copies = (newest?.bytes ?? 0) + (index?.bytes ?? 0);
  // The log may take so much; beyond nine tenths of it rows are stored earlier.
  if (fastBytesMax !== undefined && (fastBytes ?? 0) - copies > fastBytesMax * 0.9) out.push("the log has little room");
  const dropped = (index?.dropped ?? 0) + (newest?.dropped ?? 0);
  if (dropped > 0)
    out.push(`${formatCount(dropped)} ${dropped === 1 ? "part" : "parts"} of copies damaged and rebuilt`);
  if (newest?.refused) out.push("no room for more partitions: older ones are read from the large device");
  if (index?.refused) out.push("no room for more of the index");
  return out.length > 0 ? out.join("; ") : "in order";
}
