/** Asks for a token when the server wants one. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { useShared } from "../context";
import { Dialog } from "./Dialog";

export function TokenDialog({ onClose }: { onClose: () => void }): JSX.Element {
  const { session } = useShared();
  const [token, setToken] = useState("");
  const [remember, setRemember] = useState(false);
  return (
    <Dialog title="This server requires a token" onClose={onClose}>
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault();
          if (token.trim() !== "") session.give(token.trim(), remember);
        }}
      >
        <p>
          {session.token() === undefined
            ? "Reading needs a token with the right to read."
            : "The token is unknown or has been revoked."}{" "}
          The operator of the server creates one with
        </p>
        <pre class="code">headwater token create --db DIR --name me --read &apos;*&apos;</pre>
        <label class="field">
          <span>Token</span>
          <input
            type="password"
            autofocus
            autocomplete="off"
            spellcheck={false}
            value={token}
            onInput={(event) => setToken(event.currentTarget.value)}
          />
        </label>
        <label class="check">
          <input type="checkbox" checked={remember} onChange={(event) => setRemember(event.currentTarget.checked)} />
          <span>Remember it on this device</span>
        </label>
        <div class="actions">
          <button type="submit" class="primary" disabled={token.trim() === ""}>
            Continue
          </button>
        </div>
      </form>
    </Dialog>
  );
}
