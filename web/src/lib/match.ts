/**
 * What a search means within a stream: which fields it names, and which letters it found.
 *
 * Invariant: it agrees with the server, which finds a stream when each word occurs in its text or in the name of a field.
 */
import type { FieldInfo, StreamInfo } from "../api/streams";

export function wordsOf(search: string): string[] {
  return search.toLowerCase().split(/\s+/).filter(Boolean);
}

/** The fields that a search names: all of a stream whose own text has every word. */
export function matchingFields(info: StreamInfo, words: readonly string[]): readonly FieldInfo[] {
  const stream = info.stream.toLowerCase();
  const left = words.filter((word) => !stream.includes(word));
  if (left.length === 0) return info.fields;
  const has = (field: FieldInfo, word: string): boolean => field.name.toLowerCase().includes(word);
  const whole = info.fields.filter((field) => left.every((word) => has(field, word)));
  return whole.length > 0 ? whole : info.fields.filter((field) => left.some((word) => has(field, word)));
}

export interface Piece {
  readonly text: string;
  readonly isFound: boolean;
}

/** The text in pieces, those that a word of the search stands for marked. */
export function pieces(text: string, words: readonly string[]): Piece[] {
  const lower = text.toLowerCase();
  // Letters whose small form has another length would shift what follows.
  if (lower.length !== text.length || words.length === 0) return text === "" ? [] : [{ text, isFound: false }];
  const found = new Array<boolean>(text.length).fill(false);
  for (const word of words) {
    for (let at = lower.indexOf(word); at >= 0; at = lower.indexOf(word, at + 1))
      found.fill(true, at, at + word.length);
  }
  const out: Piece[] = [];
  for (let from = 0; from < text.length;) {
    let to = from + 1;
    while (to < text.length && found[to] === found[from]) to++;
    out.push({ text: text.slice(from, to), isFound: found[from] === true });
    from = to;
  }
  return out;
}

/** A text in two: where there is no room for all of it, the first part is cut at its end, and the second stays. */
export function halves(text: string): readonly [head: string, tail: string] {
  const letters = [...text];
  const kept = Math.min(14, Math.floor(letters.length / 2));
  return letters.length < 18 ? [text, ""] : [letters.slice(0, -kept).join(""), letters.slice(-kept).join("")];
}
