/** What an empty database shows: how to send a first point. It turns into the plot when one arrives. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { useShared } from "../context";

type Way = "curl" | "python" | "telegraf";

const WAYS: readonly (readonly [Way, string])[] = [
  ["curl", "curl"],
  ["python", "Python"],
  ["telegraf", "Telegraf"],
];

/** A program that sends to a server; `auth` = whether a token is wanted. */
export function snippet(way: Way, server: string, auth: boolean): string {
  switch (way) {
    case "curl":
      return [
        `curl ${server}/write \\`,
        ...(auth ? [`  -H 'Authorization: Bearer YOUR-TOKEN' \\`] : []),
        `  --data-binary 'room,sensor=desk temperature=21.5,humidity=48'`,
        "",
        "# once a second, to watch it live",
        `while sleep 1; do curl ${server}/write \\`,
        ...(auth ? [`  -H 'Authorization: Bearer YOUR-TOKEN' \\`] : []),
        '  --data-binary "room,sensor=desk temperature=$((20 + RANDOM % 3))"; done',
      ].join("\n");
    case "python":
      return [
        "import random, time, urllib.request",
        "",
        "while True:",
        `    line = f"room,sensor=desk temperature={21 + random.random():.2f}"`,
        `    request = urllib.request.Request("${server}/write", line.encode())`,
        ...(auth ? ['    request.add_header("Authorization", "Bearer YOUR-TOKEN")'] : []),
        "    urllib.request.urlopen(request)",
        "    time.sleep(1)",
      ].join("\n");
    case "telegraf":
      return [
        "[[inputs.cpu]]",
        "[[inputs.mem]]",
        "",
        "[[outputs.influxdb_v2]]",
        `  urls = ["${server}"]`,
        `  token = "${auth ? "YOUR-TOKEN" : ""}"`,
        '  organization = "any"',
        '  bucket = "any"',
      ].join("\n");
  }
}

export function FirstSteps(): JSX.Element {
  const { session } = useShared();
  const [way, setWay] = useState<Way>("curl");
  const [copied, setCopied] = useState(false);
  const server = new URL(".", document.baseURI).href.replace(/\/$/, "");
  const text = snippet(way, server, session.token() !== undefined);
  return (
    <div class="first">
      <h1>Send a first point</h1>
      <p>
        This database is empty. Anything that speaks line protocol can write to it; tables and fields are made by the
        first write. This page shows the data as soon as they arrive.
      </p>
      <div class="group segmented tabs" role="tablist" aria-label="Ways to send">
        {WAYS.map(([each, label]) => (
          <button
            type="button"
            key={each}
            role="tab"
            id={`way-${each}`}
            aria-selected={way === each}
            aria-controls="way"
            class={way === each ? "ghost on" : "ghost"}
            onClick={() => {
              setWay(each);
              setCopied(false);
            }}
          >
            {label}
          </button>
        ))}
      </div>
      <div class="snippet" role="tabpanel" id="way" aria-labelledby={`way-${way}`}>
        <pre class="code" tabIndex={0}>
          {text}
        </pre>
        <button
          type="button"
          class="copy"
          onClick={() => {
            // The clipboard is there on secure origins only; elsewhere the text is selected.
            const copy =
              navigator.clipboard?.writeText(text) ?? Promise.reject(new Error("the clipboard is not available"));
            copy.then(() => setCopied(true)).catch(select);
          }}
        >
          {copied ? "Copied" : "Copy"}
        </button>
      </div>
      <p class="waiting" role="status">
        <span class="pulse" /> Waiting for data …
      </p>
    </div>
  );
}

function select(): void {
  const code = document.querySelector(".snippet .code");
  if (code) getSelection()?.selectAllChildren(code);
}
