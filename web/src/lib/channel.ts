/**
 * Names of streams and channels: `table,tag=value,…` and `STREAM.FIELD`, escaped as in line protocol.
 *
 * Invariant: names are never put together from unescaped parts; what the server sent is passed back as it was.
 */

export interface ChannelName {
  readonly stream: string;
  readonly field: string;
}

/** A channel of a stream. A dot within the field's name is escaped, because the last bare one divides. */
export function channelOf(stream: string, field: string): string {
  return `${stream}.${field.replaceAll(".", "\\.")}`;
}

/** Divides a channel at its last dot that is not escaped; `null` if there is none. */
export function splitChannel(channel: string): ChannelName | null {
  for (let at = channel.length - 1; at > 0; at--) {
    if (channel[at] !== ".") continue;
    let slashes = 0;
    while (channel[at - 1 - slashes] === "\\") slashes++;
    if (slashes % 2 === 1) continue;
    const field = channel.slice(at + 1).replaceAll("\\.", ".");
    return field === "" ? null : { stream: channel.slice(0, at), field };
  }
  return null;
}

/** How a stream is shown: its table, and its tags as pairs. */
export function streamLabel(stream: string): { table: string; tags: [string, string][] } {
  const pieces = splitBare(stream, ",");
  const tags = pieces.slice(1).map((piece): [string, string] => {
    const [key = "", ...value] = splitBare(piece, "=");
    return [unescape(key), unescape(value.join("="))];
  });
  return { table: unescape(pieces[0] ?? ""), tags };
}

function splitBare(text: string, divider: string): string[] {
  const out: string[] = [];
  let piece = "";
  for (let at = 0; at < text.length; at++) {
    const char = text[at] ?? "";
    if (char === "\\" && at + 1 < text.length) {
      piece += char + (text[++at] ?? "");
    } else if (char === divider) {
      out.push(piece);
      piece = "";
    } else {
      piece += char;
    }
  }
  out.push(piece);
  return out;
}

function unescape(text: string): string {
  return text.replace(/\\([,= \\.])/g, "$1");
}
