/** The view as a file: CSV of what is shown or of every row, and a picture. */
import type { Client, Outcome } from "../api/client";
import { formatInstant, type Span } from "../lib/time";
import type { Explorer } from "./explorer";

/** One line per point and channel, at the resolution on screen. Times are exact to the resolution of a bucket's mean. */
export function shownCsv(explorer: Explorer): string {
  const lines = ["channel,time_ns,time_utc,mean,min,max,count"];
  const { view } = explorer;
  const size = Number(view.to - view.from);
  for (const channel of explorer.channels.all) {
    const { points } = channel;
    for (let i = 0; i < (points?.length ?? 0); i++) {
      const x = points?.x[i] ?? -1;
      if (!points || x < 0 || x >= size) continue;
      const at = view.from + BigInt(Math.round(x));
      const values = [points.mean[i], points.min[i], points.max[i], points.count[i]].map((v) =>
        v === undefined || Number.isNaN(v) ? "" : String(v),
      );
      lines.push(
        [quoted(channel.name), String(at), `${formatInstant(at, "utc", 9).replace(" ", "T")}Z`, ...values].join(","),
      );
    }
  }
  return lines.join("\n") + "\n";
}

export function quoted(text: string): string {
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Every row of a stream in a span, as the server writes it. */
export async function rowsCsv(client: Client, stream: string, span: Span, past?: string): Promise<Outcome<Blob>> {
  const query: [string, string][] = [
    ["stream", stream],
    ["from", String(span.from)],
    ["to", String(span.to)],
    ["format", "csv"],
  ];
  if (past !== undefined) query.push(["snapshot", past]);
  const opened = await client.open("api/v1/export", query, { accept: "text/csv" });
  if (!opened.ok) return opened;
  try {
    return { ok: true, value: await opened.value.blob() };
  } catch {
    return { ok: false, error: { code: "NETWORK", message: "the transfer was interrupted", status: 0 } };
  }
}

/** Puts the plots, their legends and the time axis into one picture. */
export function picture(area: HTMLElement, background: string, ink: string): Promise<Blob | null> {
  const ratio = devicePixelRatio;
  const box = area.getBoundingClientRect();
  const rows = [...area.querySelectorAll<HTMLElement>("[data-picture]")];
  const heights = rows.map((row) => row.getBoundingClientRect().height);
  const height = heights.reduce((sum, h) => sum + h, 0);
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(box.width * ratio);
  canvas.height = Math.round((height + 12) * ratio);
  const context = canvas.getContext("2d");
  if (!context) return Promise.resolve(null);
  context.fillStyle = background;
  context.fillRect(0, 0, canvas.width, canvas.height);
  let top = 6;
  rows.forEach((row, index) => {
    const rowBox = row.getBoundingClientRect();
    if (row.dataset["picture"] === "text") {
      for (const item of row.querySelectorAll<HTMLElement>("[data-label]")) {
        const itemBox = item.getBoundingClientRect();
        // What is scrolled out of sight is not in the picture either.
        if (itemBox.bottom > rowBox.bottom + 1 || itemBox.top < rowBox.top - 1) continue;
        context.font = `${12 * ratio}px system-ui, sans-serif`;
        context.textBaseline = "middle";
        const x = 12;
        const y = (top + itemBox.top - rowBox.top + itemBox.height / 2) * ratio;
        context.fillStyle = item.dataset["colour"] ?? ink;
        context.fillRect(x * ratio, y - 4 * ratio, 8 * ratio, 8 * ratio);
        context.fillStyle = ink;
        context.fillText(item.dataset["label"] ?? "", (x + 14) * ratio, y);
      }
    } else {
      for (const part of row.querySelectorAll("canvas")) {
        const partBox = part.getBoundingClientRect();
        context.drawImage(
          part,
          (partBox.left - box.left) * ratio,
          (top + partBox.top - rowBox.top) * ratio,
          partBox.width * ratio,
          partBox.height * ratio,
        );
      }
    }
    top += heights[index] ?? 0;
  });
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

/** Hands a file to the browser's downloads. */
export function download(content: Blob, name: string): void {
  const url = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** A file name that tells what and when. */
export function fileName(explorer: Explorer, ending: string): string {
  const first = explorer.channels.all[0]?.name.replace(/[^\w.-]+/g, "_").slice(0, 60) ?? "view";
  const at = formatInstant(explorer.view.from, "utc", 0).replace(/[: ]/g, "-");
  return `headwater_${first}_${at}.${ending}`;
}
