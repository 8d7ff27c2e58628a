/**
 * A field for SQL: colours behind a plain text area, completion, and a mark where the server found a mistake.
 *
 * Invariant: the text area holds the text and the caret, so that undo, selection, input methods and screen readers are the
 * browser's own; the painted copy behind it has the same letters at the same places.
 */
import type { JSX, RefObject, TargetedKeyboardEvent } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { TableColumns } from "../api/sql";
import { complete, tokens, type Completion, type Range } from "../lib/sql";

/** Height of a line in CSS pixels, as the style sheet has it, and how many lines are shown. */
const LINE_PX = 20;
const LINES_MIN = 5;
const LINES_MAX = 16;

interface SqlEditorProps {
  readonly value: string;
  readonly area: RefObject<HTMLTextAreaElement | null>;
  readonly catalog: readonly TableColumns[];
  /** Where a mistake is. */
  readonly mark: Range | undefined;
  readonly onInput: (value: string) => void;
  readonly onRun: () => void;
}

export function SqlEditor({ value, area, catalog, mark, onInput, onRun }: SqlEditorProps): JSX.Element {
  const paint = useRef<HTMLPreElement>(null);
  const [offer, setOffer] = useState<Completion>();
  const [chosen, setChosen] = useState(0);

  const offerAt = (asked = false): void => {
    const element = area.current;
    const { selectionStart: caret, selectionEnd } = element ?? { selectionStart: 0, selectionEnd: 0 };
    setOffer(element && caret === selectionEnd ? complete(element.value, caret, catalog, asked) : undefined);
    setChosen(0);
  };

  const accept = (index: number): void => {
    const element = area.current;
    const text = offer?.suggestions[index]?.text;
    if (!element || !offer || text === undefined) return;
    element.focus();
    element.setSelectionRange(offer.from, offer.to);
    // The old command is the only way to insert that undo knows of.
    if (!document.execCommand("insertText", false, text)) element.setRangeText(text, offer.from, offer.to, "end");
    onInput(element.value);
    setOffer(undefined);
  };

  const onKeyDown = (event: TargetedKeyboardEvent<HTMLTextAreaElement>): void => {
    const { key } = event;
    if (key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      setOffer(undefined);
      onRun();
    } else if (key === " " && event.ctrlKey) {
      event.preventDefault();
      offerAt(true);
    } else if (offer && (key === "ArrowDown" || key === "ArrowUp")) {
      event.preventDefault();
      const count = offer.suggestions.length;
      setChosen((chosen + (key === "ArrowDown" ? 1 : count - 1)) % count);
    } else if (offer && (key === "Enter" || key === "Tab") && !event.shiftKey) {
      event.preventDefault();
      accept(chosen);
    } else if (offer && key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      setOffer(undefined);
    } else if (["ArrowLeft", "ArrowRight", "Home", "End", "PageUp", "PageDown"].includes(key)) {
      setOffer(undefined);
    }
  };

  const follow = (): void => {
    if (!paint.current || !area.current) return;
    paint.current.scrollTop = area.current.scrollTop;
    paint.current.scrollLeft = area.current.scrollLeft;
  };
  useLayoutEffect(follow);

  const lines = Math.min(LINES_MAX, Math.max(LINES_MIN, value.split("\n").length + 1));
  return (
    <div class="sql-editor" style={{ height: `${lines * LINE_PX + 22}px` }}>
      <pre class="sql-text sql-paint" aria-hidden="true" ref={paint}>
        <Painted text={value} mark={mark} caret={offer?.from} />
        {"\n"}
      </pre>
      <textarea
        class="sql-text sql-area"
        ref={area}
        value={value}
        spellcheck={false}
        autocapitalize="off"
        autocomplete="off"
        aria-label="SQL"
        aria-autocomplete="list"
        aria-controls="sql-offers"
        aria-invalid={mark !== undefined}
        aria-activedescendant={offer ? `sql-offer-${chosen}` : undefined}
        placeholder="SELECT …"
        onInput={(event) => {
          onInput(event.currentTarget.value);
          offerAt();
        }}
        onKeyDown={onKeyDown}
        onScroll={follow}
        onClick={() => setOffer(undefined)}
        onBlur={() => setOffer(undefined)}
      />
      {offer && <Offers offer={offer} chosen={chosen} paint={paint} onChoose={accept} />}
    </div>
  );
}

function Painted({
  text,
  mark,
  caret,
}: {
  text: string;
  mark: Range | undefined;
  caret: number | undefined;
}): JSX.Element {
  const parts: JSX.Element[] = [];
  tokens(text).forEach((token, k) => {
    if (token.from === caret) parts.push(<span key="caret" data-caret />);
    const isMarked = mark !== undefined && token.from < mark.to && token.to > mark.from && token.kind !== "space";
    parts.push(
      <span key={k} class={isMarked ? `sql-${token.kind} sql-mark` : `sql-${token.kind}`}>
        {text.slice(token.from, token.to)}
      </span>,
    );
  });
  if (caret === text.length) parts.push(<span key="caret" data-caret />);
  return <>{parts}</>;
}

interface OffersProps {
  readonly offer: Completion;
  readonly chosen: number;
  readonly paint: RefObject<HTMLPreElement | null>;
  readonly onChoose: (index: number) => void;
}

function Offers({ offer, chosen, paint, onChoose }: OffersProps): JSX.Element {
  const place = useRef<HTMLUListElement>(null);
  useLayoutEffect(() => {
    const list = place.current;
    const caret = paint.current?.querySelector<HTMLElement>("[data-caret]");
    if (!list || !caret || !paint.current) return;
    const left = caret.offsetLeft - paint.current.scrollLeft;
    list.style.left = `${Math.max(4, Math.min(left, paint.current.clientWidth - list.offsetWidth - 4))}px`;
    list.style.top = `${caret.offsetTop - paint.current.scrollTop + 22}px`;
  }, [offer, paint]);
  useEffect(() => {
    place.current?.children[chosen]?.scrollIntoView({ block: "nearest" });
  }, [chosen]);
  return (
    <ul class="sql-offers" id="sql-offers" role="listbox" aria-label="Completion" ref={place}>
      {offer.suggestions.map(({ text, note }, k) => (
        <li
          key={text}
          id={`sql-offer-${k}`}
          role="option"
          aria-selected={k === chosen}
          // Before the text area loses the focus.
          onPointerDown={(event) => {
            event.preventDefault();
            onChoose(k);
          }}
        >
          <span>{text.replace(/\($/, "")}</span>
          <span class="soft">{note}</span>
        </li>
      ))}
    </ul>
  );
}
